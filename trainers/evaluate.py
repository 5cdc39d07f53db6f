"""Score a model folder on the held-out part of a dataset version.

    python -m trainers.evaluate --model DIR --data DIR --manifest DIR_OR_FILE
    python -m trainers.evaluate --model DIR --dataset coco --annotations FILE --data DIR ...

    --model             a folder that trainers.train left: model.safetensors and model.json
    --data              the folder of labelled folders of images: DIR/<label>/<name>.png
    --manifest          manifest.jsonl of the dataset version, or the folder that holds it
    --max-bad-fraction  of files that may be no images (default 0.01)
    --architecture      the dotted path of your own model, if the folder is of one
    --dataset           as in trainers.train: folder, shards, synthetic, coco, or your own by its
                        dotted path
    --annotations       of coco: the annotations' path in the dataset

Prints one JSON object: accuracy (of a detector average_precision, and box_ap, box_ap_50, box_ap_75,
mask_ap …), loss (null if the model lacks a class of the data), held_out_samples,
quarantined_files, dataset_version. Exit code 65 if the data is not what the manifest says, or not
fit to learn from; 1 for any other failure.

What is held out follows from an image's content (see `trainers.data.samples.is_held_out`), so any
two models can be compared on it fairly, whichever dataset version each was trained on.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from trainers.data.image_file import ImageFormat
from trainers.data.images import Dataset, ImageSource, to_input
from trainers.detection.dataset import AnnotatedImages
from trainers.detection.evaluation import evaluate_detector
from trainers.detection.network import is_detector
from trainers.detection.scores import DetectionEvaluation
from trainers.errors import LaunchInvalid, TrainingError
from trainers.parallelism.launch import Launch
from trainers.parallelism.mesh import Place
from trainers.parallelism.world import World
from trainers.plugins import load_dataset
from trainers.serving.model_folder import Model, load_model
from trainers.settings import add_data_arguments, dataset_request

_BATCH = 512  # images that one rank scores at a time: small enough for any memory


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How a classifier does on held-out images."""

    headline_name: ClassVar[str] = "accuracy"

    accuracy: float
    loss: float
    """Mean cross-entropy in nats; infinite if the model lacks a class that occurs."""
    confusion: Tensor
    """Counts of shape (classes, classes + 1): true by predicted; the last, a class that the data
    does not have."""

    @property
    def headline(self) -> float:
        """The number that models are compared by."""
        return self.accuracy

    def metrics(self) -> dict[str, float]:
        """For metrics.json."""
        return {"accuracy": self.accuracy, "loss": self.loss}

    def report(self) -> dict[str, Any]:
        """For report.json: true by predicted."""
        return {"confusion": self.confusion[:, :-1].tolist()}


def evaluate(
    model: Model,
    images: ImageSource,
    classes: Sequence[str],
    world: World,
    progress: Callable[[], object] = lambda: None,
    place: Place | None = None,
) -> Evaluation | DetectionEvaluation:
    """Score `model` on images of `classes`, each rank a part of them.

    Every rank does as many forward passes as the others, so that the network may be in shards.

    Args:
        model: what is scored.
        images: what it is scored on.
        classes: the names of the labels.
        world: the ranks.
        progress: is called after each pass.
        place: of this rank, if ranks share the network; else each scores a part by itself.

    Raises:
        LaunchInvalid: a classifier on annotated images, or a detector on labelled ones.
    """
    place = place or Place(data_rank=world.rank, data_ranks=world.size)
    detects = is_detector(model.network)
    if isinstance(images, AnnotatedImages) and detects:
        return evaluate_detector(model, images, classes, world, progress, place)
    if isinstance(images, AnnotatedImages) or detects:
        raise LaunchInvalid(
            f"the model is a {'detector' if detects else 'classifier'}, {model.architecture}: "
            "annotated images (--dataset coco) are for detectors, labelled ones for classifiers"
        )
    return evaluate_classifier(model, images, classes, world, progress, place)


def evaluate_classifier(
    model: Model,
    images: ImageSource,
    classes: Sequence[str],
    world: World,
    progress: Callable[[], object],
    place: Place,
) -> Evaluation:
    """Score `model` on images labelled by `classes`; arguments are those of `evaluate`.

    The model may know other classes: what it calls by a name that is not the label is wrong, so a
    champion that never saw a class has every image of it wrong.
    """
    ours = {label: number for number, label in enumerate(classes)}
    theirs = {label: number for number, label in enumerate(model.classes)}
    to_ours = torch.tensor([ours.get(label, len(classes)) for label in model.classes])
    to_theirs = torch.tensor([theirs.get(label, -1) for label in classes])
    confusion = torch.zeros(len(classes), len(classes) + 1, dtype=torch.int64)
    loss = torch.zeros(1, dtype=torch.float64)
    model.network.eval()
    with torch.inference_mode():
        for numbers in place.passes(len(images), at_once=_BATCH):
            batch = images.take(numbers if len(numbers) else torch.tensor([0]))
            logits = model.network(to_input(batch.pixels, world.device)).cpu()[: len(numbers)]
            labels = batch.labels[: len(numbers)]
            confusion.index_put_(
                (labels, to_ours[logits.argmax(dim=1)]), torch.ones_like(labels), accumulate=True
            )
            loss += _cross_entropy(logits, to_theirs[labels])
            progress()
    if not place.is_counted:  # another rank has the same images
        confusion.zero_()
        loss.zero_()
    confusion = world.sum(confusion.to(world.device)).cpu()
    loss = world.sum(loss.to(world.device)).cpu()
    return Evaluation(
        accuracy=confusion.diagonal().sum().item() / len(images),
        loss=loss.item() / len(images),
        confusion=confusion,
    )


def evaluate_champion(
    folder: Path, dataset: Dataset, image_format: ImageFormat, architecture: str, world: World
) -> Evaluation | DetectionEvaluation:
    """Score the model in `folder` on what `dataset` holds out, read as that model wants it.

    Args:
        folder: the champion's model folder.
        dataset: read in `image_format`.
        image_format: what the challenger takes.
        architecture: the challenger's; the one dotted path that the champion may be of.
        world: the ranks.

    Raises:
        ModelUnreadable: there is no model of ours in the folder.
        LaunchInvalid: the champion is of another kind than the dataset.
        DataChanged: a file is no longer what it was when the dataset was read.
    """

    def load() -> tuple[Model, ImageSource]:
        champion = load_model(folder, world.device, architecture)
        if champion.image_format == image_format:
            return champion, dataset.held_out
        return champion, dataset.held_out_as(champion.image_format)

    champion, images = world.together("champion", load)
    return evaluate(champion, images, dataset.classes, world)


def _cross_entropy(logits: Tensor, targets: Tensor) -> float:
    if bool((targets < 0).any()):
        return math.inf
    return functional.cross_entropy(logits, targets, reduction="sum").item()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line above, in one process."""
    parser = argparse.ArgumentParser(
        prog="python -m trainers.evaluate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--architecture", default=None)
    add_data_arguments(parser)
    options = parser.parse_args(arguments)
    world = World.join(Launch(), timeout_seconds=0)
    try:
        model = load_model(options.model, world.device, options.architecture)
        dataset = load_dataset(options.dataset, dataset_request(options, model.image_format))
        evaluation = evaluate(model, dataset.held_out, dataset.classes, world)
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
    return 0


if __name__ == "__main__":
    sys.exit(main())
