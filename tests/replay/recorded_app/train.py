"""A training program that does what its data tells it: what is recorded here is the orchestrators.

`script.json` among the data: `seconds` it takes (0), how often it `crashes` before it succeeds (0),
the `accuracy` that it then has (0.9), how many samples of a slice it loses against the champion
(`fell`, without it there is no comparison), whether it finds the data `changed` (0) or, as a data
check, `wrong` (0). A file `*.bad` has it refuse the dataset.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

EX_DATAERR = 65
CHAMPION_ACCURACY = 0.6


def compare(right: int, fell: int) -> dict[str, Any]:
    """Of 1,000 samples, of which the champion has 600: `fell` of the 200 of label 7 are lost.

    So are 4 of the 40 of label 9.
    """

    def part(both: int, lost: int, won: int, samples: int) -> dict[str, int]:
        wrong = {"both_wrong": samples - both - lost - won}
        return {"both_right": both, "only_champion": lost, "only_challenger": won, **wrong}

    lost, won = fell + 4, right - 600 + fell + 4
    slices = {
        "label:7": part(200 - fell, fell, 0, 200),
        "label:8": part(380, 0, won, 760),
        "label:9": part(16, 4, 0, 40),
    }
    return {"metric": "accuracy", "whole": part(600 - lost, lost, won, 1000), "slices": slices}


def main() -> int:
    """Train, so to say; the exit status."""
    parser = argparse.ArgumentParser()
    for flag in ("--data", "--manifest", "--output-dir", "--checkpoint-dir"):
        parser.add_argument(flag, type=Path, required=True)
    parser.add_argument("--champion", required=True)
    given = parser.parse_args()
    lines = (given.manifest / "manifest.jsonl").read_text().splitlines()
    files = {line["path"]: line.get("file", line["path"]) for line in map(json.loads, lines)}
    paths = list(files)
    script = json.loads((given.data / files.get("script.json", "script.json")).read_text())
    time.sleep(script.get("seconds", 0))

    bad = [path for path in paths if path.endswith(".bad")]
    if bad:
        error = {
            "type": "DataRejected",
            "message": f"{len(bad)} of {len(paths)} files are bad",
            "files": [{"path": path, "reason": "bad"} for path in bad],
        }
        (given.output_dir / "error.json").write_text(json.dumps(error))
        return EX_DATAERR

    if script.get("changed"):
        error = {"type": "DataChanged", "message": "1 was overwritten", "files": []}
        (given.output_dir / "error.json").write_text(json.dumps(error))
        return EX_DATAERR

    earlier = len(list(given.checkpoint_dir.iterdir()))
    if earlier < script.get("crashes", 0):
        (given.checkpoint_dir / f"step-{earlier + 1}").write_text("{}")
        return 1

    metrics = {"accuracy": script.get("accuracy", 0.9), "resumed_from_step": earlier}
    if given.champion != "none":
        metrics["champion_accuracy"] = CHAMPION_ACCURACY
        if "fell" in script:
            text = json.dumps(compare(round(1000 * metrics["accuracy"]), round(script["fell"])))
            (given.output_dir / "comparison.json").write_text(text)
    model = given.output_dir / "model"
    model.mkdir(parents=True, exist_ok=True)
    (model / "model.json").write_text(json.dumps({"accuracy": metrics["accuracy"]}))
    (given.output_dir / "metrics.json").write_text(json.dumps(metrics))
    (given.output_dir / "checks.json").write_text(json.dumps({"passed": not script.get("wrong")}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
