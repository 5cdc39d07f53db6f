"""The results of a run: its metrics, and the files of its output folder, all written atomically.

| file | holds |
|---|---|
| model/ | the model, see `trainers.serving.model_folder` |
| comparison.json | model and champion by label, see `trainers.reports.comparison` |
| report.json | for people: classes, confusions, speed, learning curve, quarantined files |
| metrics.json | a flat object, name → number; written last: it marks the results as complete |
| error.json | on failure only, see `trainers.reports.error_file` |
| stacks-rank-<n>.txt | after a hang only, see `trainers.parallelism.watchdog` |
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import platform
from pathlib import Path

from trainers.files import write_json_atomically
from trainers.loop import Run
from trainers.reports.comparison import compare
from trainers.reports.speed import peak_memory_bytes
from trainers.serving.model_folder import Model, save_model
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
        "resumed_from_step": run.resumed_from_step,
        "warm_start": int(run.initial_model is not None),
        "train_seconds": run.speed.seconds,
        "images_per_second": run.speed.report()["images_per_second"],
        "devices": run.speed.devices,
    }


def write_outputs(
    run: Run,
    model: Model,
    evaluation: Evaluation,
    metrics: dict[str, float],
    champion: Evaluation | None,
) -> None:
    """Write the results of a run after its last step, with the whole model on the CPU."""
    output, dataset, device = run.settings.output_dir, run.dataset, run.world.device
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
        "speed": run.speed.report() | {"peak_device_memory_bytes": peak_memory_bytes(device)},
        "curve": dataclasses.asdict(run.curve),
        "quarantined": [dataclasses.asdict(problem) for problem in dataset.quarantined],
    }
    write_json_atomically(output / "report.json", report)
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
