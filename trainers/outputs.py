"""The results of a run: metrics, and what is written into the output folder."""

from __future__ import annotations

import importlib.util
from typing import Any

from trainers.arguments import is_dotted
from trainers.detection.network import ARCHITECTURES as DETECTORS
from trainers.loop import Run
from trainers.reports import provenance, results
from trainers.reports.memory import peak_bytes
from trainers.serving import pyfunc
from trainers.serving.model_folder import Model, save_model
from trainers.tasks.task import Evaluation


def metrics_of(run: Run, evaluation: Evaluation) -> dict[str, float]:
    """Flat numbers about a run. Speed is of the steps since the last start."""
    return {
        **evaluation.metrics(),
        "train_samples": len(run.dataset.train),
        "held_out_samples": len(run.dataset.held_out),
        "classes": len(run.dataset.classes),
        "quarantined_files": len(run.dataset.quarantined),
        "steps": run.step,
        "resumed_from_step": run.resumed_from_step,
        "warm_start": int(run.initial_model is not None),
        "train_seconds": run.speed.seconds,
        "images_per_second": run.speed.report()["images_per_second"],
    }


def write_outputs(
    run: Run,
    model: Model,
    evaluation: Evaluation,
    metrics: dict[str, float],
) -> None:
    """Write the results. metrics.json comes last, as the sign that all of them are there.

    Args:
        run: after its last step.
        model: the whole of it, on the CPU.
        evaluation: of the held-out images.
        metrics: from `metrics_of`, and the champion's score.
    """
    detects = model.architecture in DETECTORS
    versions = provenance.versions(*(("torchvision", "faster-coco-eval") if detects else ()))
    initial = None if run.initial_model is None else run.initial_model.lineage()
    about: dict[str, Any] = {
        "metrics": metrics,
        "dataset_version": run.dataset.version,
        "initial_model": initial,
        "code_version": provenance.code_version(),
        "seed": run.settings.seed,
        "versions": versions,
    }
    output = run.settings.output_dir
    speed = {
        **run.speed.report(),
        "peak_device_memory_bytes": peak_bytes(run.world.device),
    }
    if not is_dotted(model.architecture) and importlib.util.find_spec("mlflow") is not None:
        pyfunc.write_flavour(output / results.MODEL_NAME, versions, detects=detects)
    save_model(output / results.MODEL_NAME, model, about)
    results.write_report(output, run.dataset, evaluation, speed, run.curve, initial_model=initial)
    try:
        results.write_pictures(output, model.architecture, run.dataset, evaluation, run.curve)
    except Exception as error:  # noqa: BLE001  # a picture never costs a trained model
        run.log(f"warning: no pictures: {type(error).__name__}: {error}")
    results.write_metrics(output, metrics)
