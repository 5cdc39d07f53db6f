"""What a run leaves in its output folder, each file whole or not there.

| file | holds |
|---|---|
| model/ | the model, see `trainers.model_folder` |
| metrics.json | flat: name → number |
| report.json | for people: classes, confusion matrix, speed, loss curve, quarantined files |
| error.json | on failure only: type, message, files (path and reason), files_total |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainers.errors import TrainingError
from trainers.evaluate import Evaluation
from trainers.files import write_json_atomically
from trainers.images import Dataset

MODEL_NAME = "model"
METRICS_NAME = "metrics.json"
REPORT_NAME = "report.json"
ERROR_NAME = "error.json"


def write_metrics(output: Path, metrics: dict[str, float]) -> None:
    """Write metrics.json."""
    write_json_atomically(output / METRICS_NAME, metrics)


def write_report(
    output: Path,
    dataset: Dataset,
    evaluation: Evaluation,
    speed: Mapping[str, Any],
    curve: Sequence[tuple[int, float]],
) -> None:
    """Write report.json.

    Args:
        output: the folder.
        dataset: what was trained on.
        evaluation: of the held-out images.
        speed: from `trainers.scaling.figures`.
        curve: steps done and the loss of the batch then.
    """
    write_json_atomically(
        output / REPORT_NAME,
        {
            "dataset_version": dataset.version,
            "classes": list(dataset.classes),
            "confusion": evaluation.confusion[:, :-1].tolist(),
            "speed": dict(speed),
            "curve": [{"step": step, "loss": loss} for step, loss in curve],
            "quarantined": [dataclasses.asdict(problem) for problem in dataset.quarantined],
        },
    )


def clear_error(output: Path) -> None:
    """Remove error.json of an earlier start: a requeued job has the same output folder."""
    (output / ERROR_NAME).unlink(missing_ok=True)


def write_error(output: Path, error: Exception) -> None:
    """Write error.json, unless another rank has: the first failure is the cause of the others."""
    path = output / ERROR_NAME
    if path.exists():
        return
    problems = error.problems if isinstance(error, TrainingError) else ()
    total = error.total_problems if isinstance(error, TrainingError) else 0
    write_json_atomically(
        path,
        {
            "type": type(error).__name__,
            "message": str(error),
            "files": [dataclasses.asdict(problem) for problem in problems],
            "files_total": total,
        },
    )
