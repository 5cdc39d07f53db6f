"""The results of a run: its metrics, and the files of its output folder, all written atomically.

| file | holds |
|---|---|
| model/ | the model, see `trainers.serving.model_folder` |
| comparison.json | model and champion by label, see `trainers.reports.comparison` |
| curve.svg | the losses by step, see `trainers.reports.picture` |
| report.json | for people: classes, confusions, speed, learning curve, quarantined files |
| metrics.json | a flat object, name → number; written last: it marks the results as complete |
| error.json | on failure only, see `trainers.reports.error_file` |
| stacks-rank-<n>.txt | after a hang only, see `trainers.parallelism.watchdog` |
| collectives-rank-<n> | only if NCCL fails, see `trainers.parallelism.devices` |
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import platform
from pathlib import Path

import torch

from trainers.files import write_atomically, write_json_atomically
from trainers.loop import Run
from trainers.reports.comparison import compare
from trainers.reports.efficiency import (
    exchange_fraction,
    operations_per_image,
    peak_operations,
    scaling_efficiency,
    what_limits,
)
from trainers.reports.picture import draw
from trainers.reports.speed import peak_memory_bytes
from trainers.serving.model_folder import Model, new_model, save_model
from trainers.serving.onnx_file import export_onnx
from trainers.tasks.task import Evaluation

# The packages on whose versions a model's results depend.
_PACKAGES = ("torch", "torchvision", "numpy", "pillow", "safetensors")


def metrics_of(run: Run, evaluation: Evaluation) -> dict[str, float]:
    """Return the content of metrics.json. The speed is that of the steps since the last start."""
    return {
        **evaluation.metrics(),
        "train_samples": len(run.dataset.train),
        "held_out_samples": len(run.dataset.held_out),
        "classes": len(run.dataset.classes),
        "quarantined_files": len(run.dataset.quarantined),
        "steps": run.step,
        "kept_step": run.kept_step,
        "resumed_from_step": run.resumed_from_step,
        "warm_start": int(run.initial_model is not None),
        "train_seconds": run.speed.seconds,
        "images_per_second": run.speed.report()["images_per_second"],
        "devices": run.speed.devices,
    }


def speed_of(run: Run) -> dict[str, float | str]:
    """Return the speed, what a device was used for, and a sentence on what limited the speed."""
    speed, device, settings = run.speed.report(), run.world.device, run.settings
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    peak, image_format = peak_operations(name, settings.precision), settings.image_format
    utilization = None
    if peak is not None and run.task.labels_are_classes and run.task.inputs_are_images:
        operations = operations_per_image(
            lambda: new_model(settings.model, run.dataset.classes, image_format).network,
            (image_format.channels, image_format.size, image_format.size),
        )
        utilization = speed["images_per_second_per_device"] * operations / peak
    known = {
        "peak_device_memory_bytes": peak_memory_bytes(device),
        "model_operations_utilization": utilization,
        "exchange_fraction": exchange_fraction(run.parallel.module),
        "scaling_efficiency": scaling_efficiency(speed, run.curve.speeds),
    }
    speed |= {name: value for name, value in known.items() if value is not None}
    return speed | {"limited_by": what_limits(speed)}


def write_outputs(
    run: Run,
    model: Model,
    evaluation: Evaluation,
    metrics: dict[str, float],
    champion: Evaluation | None,
) -> None:
    """Write the results of a run after its last step, with the whole model on the CPU."""
    output, dataset = run.settings.output_dir, run.dataset
    initial = None if run.initial_model is None else run.initial_model.lineage()
    packages = (*_PACKAGES, *(["timm"] if model.architecture.startswith("timm/") else []))
    versions = {name: importlib.metadata.version(name) for name in packages}
    about = {
        "metrics": metrics,
        "dataset_version": dataset.version,
        "initial_model": initial,
        "code_version": code_version(),
        "seed": run.settings.seed,
        "versions": {"python": platform.python_version(), **versions},
    }
    if run.settings.export is not None:
        export_onnx(output / "model", model, dataset.held_out)  # model.json is the last of all
    save_model(output / "model", model, about)
    report = {
        "dataset_version": dataset.version,
        "classes": list(dataset.classes),
        "initial_model": initial,
        **evaluation.details,
        "speed": speed_of(run),
        "curve": {"train": run.curve.train, "held_out": run.curve.held_out},
        "quarantined": [dataclasses.asdict(problem) for problem in dataset.quarantined],
    }
    write_json_atomically(output / "report.json", report)
    write_atomically(output / "curve.svg", draw(run.curve).encode())
    compared = None if champion is None else compare(evaluation, champion, dataset.classes)
    if compared is not None:
        write_json_atomically(output / "comparison.json", compared)
    write_json_atomically(output / "metrics.json", metrics)


def code_version() -> str:
    """Return the SHA-256 (hex) of the trainers' source files: a job's code has no Git commit."""
    package, digest = Path(__file__).parent, hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        content = path.read_bytes()
        name = path.relative_to(package).as_posix()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()
