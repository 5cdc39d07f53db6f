"""A data check for tables by pandera: replace SCHEMA (pandera.readthedocs.io, DataFrameSchema).

In: --manifest (folder of manifest.jsonl), --data, with CSV files.
Out, in --output-dir: report.html, then checks.json with an entry for each rule that rows break.
"""

import argparse
import json
from pathlib import Path

import pandas as pd
import pandera.pandas as pa  # pyright: ignore[reportMissingImports]

SCHEMA = pa.DataFrameSchema(
    {
        "label": pa.Column(nullable=False),  # another: pa.Column(float, pa.Check.in_range(0, 120))
    },
    checks=pa.Check(lambda rows: ~rows.duplicated(), name="no_duplicate_rows"),  # pyright: ignore[reportUnknownLambdaType]
)
RULES_TOLD = 50

parser = argparse.ArgumentParser(description=__doc__)
for option in ("--manifest", "--data", "--output-dir"):
    parser.add_argument(option, type=Path, required=True)
options = parser.parse_args()

lines = (options.manifest / "manifest.jsonl").read_text("utf-8").splitlines()
files = [json.loads(line) for line in lines]
# `file` is the copy of the blob, if dataset.freeze is copy
paths = [options.data / (entry.get("file") or entry["path"]) for entry in files]
table = pd.concat([pd.read_csv(path) for path in paths], ignore_index=True)
checks, report = [], "<p>Every row keeps the schema.</p>"
try:
    SCHEMA.validate(table, lazy=True)
except pa.errors.SchemaErrors as error:
    cases = error.failure_cases
    cases.loc[cases["schema_context"] == "DataFrameSchema", "column"] = "the row"
    broken = cases.groupby(["column", "check"], dropna=False)
    for (column, check), rows in list(broken)[:RULES_TOLD]:
        values = ", ".join(map(str, rows["failure_case"].head(3)))
        checks.append(
            {
                "name": f"{column}: {check}"[:100],
                "passed": False,
                "value": int(rows["index"].nunique()) or len(rows),
                "limit": 0,
                "message": f"rows that break it, such as {values}"[:300],
            }
        )
    report = cases.head(1000).to_html(index=False)
options.output_dir.mkdir(parents=True, exist_ok=True)
(options.output_dir / "report.html").write_text(
    "<!doctype html><meta charset=utf-8><title>Data check</title>"
    f"<h1>{len(table)} rows of {len(files)} files</h1>{report}",
    "utf-8",
)
verdict = {"passed": not checks, "checks": checks, "report": "report.html"}
(options.output_dir / "checks.json").write_text(json.dumps(verdict), "utf-8")  # last: all is there
