"""Score a model folder on the held-out part of a dataset version.

    python -m trainers.evaluate --model DIR --data DIR --manifest DIR_OR_FILE
    python -m trainers.evaluate --model DIR --dataset coco --annotations FILE --data DIR ...

Prints one JSON object: the scores of the task (accuracy; for detectors average_precision, box_ap,
mask_ap and so on), loss (null if the model lacks a class of the data), held_out_samples,
quarantined_files, dataset_version. `--export onnx` also writes the model for devices without torch,
see `trainers.serving.onnx_file`. Exit codes: 65 if the data differs from the manifest or is not
fit to learn from; 1 for any other failure.

The content of an image decides whether it is held out (see `trainers.data.samples.Decoded`). So
two models can be compared on held-out images even if their dataset versions differ.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainers.arguments import option, parse_options
from trainers.data.dataset import DataOptions, Dataset
from trainers.errors import TrainingError
from trainers.files import write_json_atomically
from trainers.inputs import load_dataset, task_of
from trainers.parallelism.launch import Launch
from trainers.parallelism.mesh import RankCoordinates
from trainers.parallelism.parallel import compute_in_bf16
from trainers.parallelism.world import World
from trainers.serving.model_folder import Model, load_model
from trainers.serving.onnx_file import check_exportable, export_onnx
from trainers.settings import Settings
from trainers.tasks.task import Evaluation, HeldOut


def evaluate(
    model: Model,
    dataset: Dataset,
    world: World,
    *,
    coordinates: RankCoordinates | None = None,
    progress: Callable[[], object] = lambda: None,
) -> Evaluation:
    """Score `model` on held-out samples, of which each rank scores a part.

    `coordinates` are those of this rank; by default each rank has the whole network. `progress` is
    called after each pass.

    Raises:
        LaunchInvalid: the model does not fit the dataset's task.
    """
    task = task_of(dataset)
    task.check(model)
    held_out = HeldOut(
        source=dataset.held_out,
        world=world,
        coordinates=coordinates or RankCoordinates(data_rank=world.rank, data_ranks=world.size),
        progress=progress,
    )
    return task.evaluate(model, held_out, dataset.classes)


def evaluate_champion(settings: Settings, dataset: Dataset, world: World) -> Evaluation:
    """Score the model of `--champion` on the held-out images of `dataset`, in that model's format.

    `settings` are the challenger's, whose precision the champion gets. If the champion's
    architecture is a dotted path, it must be that of `--model`.

    Raises:
        ModelUnreadable: the folder does not contain a model of these trainers.
        LaunchInvalid: the champion does not fit the dataset's task.
        DataChanged: a file changed since the dataset was read.
    """

    def load() -> tuple[Model, Dataset]:
        assert settings.champion is not None
        champion = load_model(settings.champion, world.device, settings.model)
        if settings.precision == "bf16":
            compute_in_bf16(champion.network, world.device)
        if champion.image_format == settings.image_format:
            return champion, dataset
        held_out = dataset.held_out_as(champion.image_format)
        return champion, dataclasses.replace(dataset, held_out=held_out)

    return evaluate(*world.run_on_all_ranks("champion", load), world)


@dataclass(frozen=True, kw_only=True)
class Options(DataOptions):
    """The command line."""

    model: Path = option(..., "a folder that trainers.train left")
    output_dir: Path | None = option(
        None, "also write the scores there as metrics.json, as a job of champion_check does"
    )
    architecture: str | None = option(
        None, "the dotted path of your own model, if the folder is of one"
    )
    export: Literal["onnx"] | None = option(None, "write model.onnx into the folder, compared")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line above, in one process."""
    options = parse_options(Options, "trainers.evaluate", __doc__ or "", arguments)
    world = World.join(Launch(), timeout_seconds=0)
    try:
        model = load_model(options.model, world.device, options.architecture)
        dataset = load_dataset(options.dataset, options.request(model.image_format))
        if options.export is not None:
            check_exportable(model, inputs_are_images=task_of(dataset).inputs_are_images)
        evaluation = evaluate(model, dataset, world)
        if options.export is not None:
            export_onnx(options.model, model, dataset.held_out)
    except TrainingError as error:
        lines = [f"{problem.path}: {problem.reason}" for problem in error.problems]
        sys.stderr.write("\n  ".join([f"{type(error).__name__}: {error}", *lines]) + "\n")
        return error.exit_code
    result = {
        **evaluation.metrics(),
        "loss": evaluation.loss if math.isfinite(evaluation.loss) else None,
        "held_out_samples": len(dataset.held_out),
        "quarantined_files": len(dataset.quarantined),
        "dataset_version": dataset.version,
    }
    sys.stdout.write(json.dumps(result) + "\n")
    if options.output_dir is not None:
        scores = {name: value for name, value in result.items() if isinstance(value, int | float)}
        write_json_atomically(options.output_dir / "metrics.json", scores)
    return 0


if __name__ == "__main__":
    sys.exit(main())
