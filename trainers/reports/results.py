"""The files of a run's output folder, each complete or absent.

| file | holds |
|---|---|
| model/ | the model, see `trainers.serving.model_folder` |
| metrics.json | flat: name → number |
| report.json | for people: classes, confusions, speed, learning curve, quarantined files |
| learning_curve.png, confusion_matrix.png | the same as pictures, see `trainers.reports.charts` |
| error.json | on failure only, see `trainers.reports.error_file` |
| stacks-rank-<n>.txt | after a hang only, see `trainers.parallelism.watchdog` |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainers.data.dataset import Dataset
from trainers.files import write_atomically, write_json_atomically
from trainers.reports import charts
from trainers.reports.learning_curve import LearningCurve
from trainers.tasks.task import Evaluation

MODEL_NAME = "model"
METRICS_NAME = "metrics.json"
REPORT_NAME = "report.json"
CURVE_NAME = "learning_curve.png"
CONFUSION_NAME = "confusion_matrix.png"


def write_metrics(output: Path, metrics: dict[str, float]) -> None:
    """Write metrics.json."""
    write_json_atomically(output / METRICS_NAME, metrics)


def write_report(
    output: Path,
    dataset: Dataset,
    evaluation: Evaluation,
    speed: Mapping[str, Any],
    curve: LearningCurve,
    *,
    initial_model: Mapping[str, Any] | None = None,
) -> None:
    """Write report.json.

    Args:
        output: the folder.
        dataset: of the training.
        evaluation: of the held-out images.
        speed: of this start.
        curve: of all starts of the run.
        initial_model: the lineage of a warm start.
    """
    write_json_atomically(
        output / REPORT_NAME,
        {
            "dataset_version": dataset.version,
            "classes": list(dataset.classes),
            "initial_model": initial_model,
            **evaluation.details,
            "speed": dict(speed),
            "curve": dataclasses.asdict(curve),
            "quarantined": [dataclasses.asdict(problem) for problem in dataset.quarantined],
        },
    )


def write_pictures(
    output: Path,
    model: str,
    dataset: Dataset,
    evaluation: Evaluation,
    curve: LearningCurve,
) -> None:
    """Write learning_curve.png and, of a classifier, confusion_matrix.png.

    Raises:
        ImportError: matplotlib is not installed.
    """
    about = f"{model} on dataset {dataset.version}"
    figure = charts.learning_curve_figure(curve, title=about)
    write_atomically(output / CURVE_NAME, charts.png(figure))
    if evaluation.confusion is None:
        return
    figure = charts.confusion_figure(
        evaluation.confusion, dataset.classes, title=f"{about}, held-out images"
    )
    write_atomically(output / CONFUSION_NAME, charts.png(figure))
