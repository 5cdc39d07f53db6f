"""Tables: CSV files with a header and a column `label`, learned by a logistic regression.

In: --manifest (folder of manifest.jsonl), --data, --champion (a model folder, or none).
Out, in --output-dir: model/model.json, report.json, comparison.json beside a champion, then
metrics.json; on failure error.json, with exit code 65 for bad data. The model is plain numbers:
nothing is pickled, so any version reads it.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix, log_loss
from sklearn.preprocessing import StandardScaler

LABEL = "label"
SLICE_BY: str | None = None  # a column that is not learned from, by which models are compared too
GROUP_LIMIT = 150
HELD_OUT_ONE_IN = 5
EX_DATAERR = 65  # Landfall does not retry: the same data would fail again


class BadData(Exception):
    """Type in error.json, message, and the files as path and reason."""

    def __init__(self, kind: str, message: str, files: list[dict[str, str]] | None = None) -> None:
        super().__init__(message)
        self.kind, self.files = kind, files or []


@dataclass(frozen=True)
class Table:
    """Rows of numbers, shape (rows, columns), with their labels and which of them are held out."""

    columns: list[str]
    numbers: np.ndarray
    labels: np.ndarray
    held_out: np.ndarray
    slices: list[list[str]]
    """The parts of the data that each row is in: its label, its folder, its value of SLICE_BY."""


def read_table(data: Path, manifest: Path) -> Table:
    """All rows of the manifest's files.

    A row is held out by its content: no model is scored on rows that an earlier one learned.

    Raises:
        BadData: a file differs from the manifest, or is not a table of numbers and labels.
    """
    header: list[str] = []
    rows: list[tuple[list[float], str, bool, list[str]]] = []
    changed: list[dict[str, str]] = []
    bad: list[dict[str, str]] = []
    for line in (manifest / "manifest.jsonl").read_text().splitlines():
        entry: dict[str, Any] = json.loads(line)
        path: str = entry["path"]
        content = (data / path).read_bytes() if (data / path).is_file() else b""
        if len(content) != entry["size"] or entry["md5"] not in (None, _md5(content)):
            changed.append({"path": path, "reason": "differs from the manifest"})
            continue
        try:
            columns, found = _rows(content)
            if header and columns != header:
                raise ValueError(f"columns {columns}, not {header}")  # noqa: TRY301  # one exit
        except ValueError as error:
            bad.append({"path": path, "reason": str(error)})
        else:
            folder = f"folder:{Path(path).parent}"[:100]
            header = columns
            rows += [(numbers, label, side, [folder, *of]) for numbers, label, side, of in found]
    if changed:
        raise BadData("DataChanged", f"{len(changed)} files differ from the manifest", changed)
    if bad:
        raise BadData("DataRejected", f"{len(bad)} files are not tables of numbers", bad)
    table = Table(
        columns=header,
        numbers=np.array([row[0] for row in rows], dtype=np.float64),
        labels=np.array([row[1] for row in rows]),
        held_out=np.array([row[2] for row in rows], dtype=bool),
        slices=[row[3] for row in rows],
    )
    learned = set(table.labels[~table.held_out].tolist()) if rows else set[str]()
    if len(learned) <= 1 or not table.held_out.any():
        raise BadData(
            "DataRejected", f"{len(rows)} rows with the labels {sorted(learned)}: too few"
        )
    return table


def _rows(content: bytes) -> tuple[list[str], list[tuple[list[float], str, bool, list[str]]]]:
    """The names of the number columns, and numbers, label, side and slices of each row."""
    reader = csv.DictReader(io.StringIO(content.decode()))
    named = [name for name in (LABEL, SLICE_BY) if name is not None]
    if missing := set(named) - set(reader.fieldnames or ()):
        raise ValueError(f"no column {', '.join(map(repr, missing))}")
    columns = sorted(name for name in reader.fieldnames or () if name not in named)
    rows: list[tuple[list[float], str, bool, list[str]]] = []
    for row in reader:
        if None in row or None in row.values():
            raise ValueError(f"line {reader.line_num} has not as many values as the header")
        numbers = [float(row[name]) for name in columns]
        if not np.isfinite(numbers).all():
            raise ValueError(f"line {reader.line_num} has a value that is not finite")
        side = int(_md5(json.dumps([numbers, row[LABEL]]).encode()), 16) % HELD_OUT_ONE_IN
        slices = [f"{name}:{row[name]}"[:100] for name in named]
        rows.append((numbers, row[LABEL], side == 0, slices))
    return columns, rows


def fit(table: Table) -> dict[str, Any]:
    """A logistic regression on scaled columns, as plain numbers."""
    numbers, labels = table.numbers[~table.held_out], table.labels[~table.held_out]
    scaler = StandardScaler().fit(numbers)
    regression = LogisticRegression(max_iter=1000).fit(scaler.transform(numbers), labels)
    weights, bias = regression.coef_ / scaler.scale_, regression.intercept_
    bias = bias - weights @ scaler.mean_
    if len(regression.classes_) == 2:  # noqa: PLR2004  # of two classes scikit-learn has one row
        weights, bias = np.vstack([-weights, weights]) / 2, np.concatenate([-bias, bias]) / 2
    return {
        "columns": table.columns,
        "classes": regression.classes_.tolist(),
        "weights": weights.tolist(),
        "bias": bias.tolist(),
    }


def probabilities(model: dict[str, Any], table: Table) -> np.ndarray:
    """The probability of each class for each held-out row, shape (rows, classes)."""
    logits = table.numbers[table.held_out] @ np.array(model["weights"]).T + np.array(model["bias"])
    exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponents / exponents.sum(axis=1, keepdims=True)


def right(model: dict[str, Any], table: Table) -> np.ndarray:
    """Whether the model finds the label of each held-out row; one of other columns finds none."""
    if model["columns"] != table.columns:
        return np.zeros(table.held_out.sum(), dtype=bool)
    found = np.array(model["classes"])[probabilities(model, table).argmax(axis=1)]
    return found == table.labels[table.held_out]


def compare(ours: np.ndarray, champions: np.ndarray, table: Table) -> dict[str, Any]:
    """How many held-out rows each model finds, of all and of each slice: comparison.json."""
    held_out = [names for names, is_in in zip(table.slices, table.held_out, strict=True) if is_in]

    def count(name: str | None) -> dict[str, int]:
        which = np.array([name is None or name in names for names in held_out], dtype=bool)
        both = np.bincount(2 * ours[which] + champions[which], minlength=4).tolist()
        kinds = ("both_wrong", "only_champion", "only_challenger", "both_right")
        return dict(zip(kinds, both, strict=True))

    found = sorted({name for names in held_out for name in names})
    groups = Counter(name.partition(":")[0] for name in found)
    # A group of very many slices says little, and comparison.json has a limit of 500.
    slices = {it: count(it) for it in found if groups[it.partition(":")[0]] <= GROUP_LIMIT}
    return {"metric": "accuracy", "whole": count(None), "slices": slices}


def train(data: Path, manifest: Path, champion: Path, output: Path) -> None:
    """Read, fit, score, write. metrics.json comes last: it says that all else is there."""
    table = read_table(data, manifest)
    model = fit(table)
    chances, truth = probabilities(model, table), table.labels[table.held_out]
    found = np.array(model["classes"])[chances.argmax(axis=1)]
    ours = right(model, table)
    metrics = {"accuracy": float(ours.mean()), "held_out_rows": len(truth)}
    if set(truth.tolist()) <= set(model["classes"]):
        metrics["loss"] = float(log_loss(truth, chances, labels=model["classes"]))
    if champion.is_dir():  # else it is `none`
        champions = right(json.loads((champion / "model.json").read_text()), table)
        metrics["champion_accuracy"] = float(champions.mean())
        comparison = json.dumps(compare(ours, champions, table))
        (output / "comparison.json").write_text(comparison)
    confusion = confusion_matrix(truth, found, labels=model["classes"]).tolist()
    report = {"classes": model["classes"], "confusion": confusion}
    (output / "model" / "model.json").write_text(json.dumps(model))
    (output / "report.json").write_text(json.dumps(report))
    (output / "metrics.json").write_text(json.dumps(metrics))


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def main() -> int:
    """Run the command line above; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("--manifest", "--data", "--champion", "--output-dir"):
        parser.add_argument(option, type=Path, required=True)
    options = parser.parse_args()
    output: Path = options.output_dir
    (output / "model").mkdir(parents=True, exist_ok=True)
    try:
        train(options.data, options.manifest, options.champion, output)
    except BadData as error:
        failure = {"type": error.kind, "message": str(error), "files": error.files}
        (output / "error.json").write_text(json.dumps(failure))
        return EX_DATAERR
    return 0


if __name__ == "__main__":
    sys.exit(main())
