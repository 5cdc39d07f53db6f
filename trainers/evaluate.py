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
quarantined_files, dataset_version. Exit code 65 if the data differs from the manifest or is not
fit to learn from; 1 for any other failure.

The content of an image decides whether it is held out (see `trainers.data.samples.is_held_out`), so
two models can be compared on held-out images whichever dataset version each was trained on.
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

from trainers.arguments import add_options, option
from trainers.data.image_file import ImageFormat
from trainers.data.images import Dataset, ImageSource, to_input
from trainers.detection.dataset import AnnotatedImages
from trainers.detection.evaluation import evaluate_detector
from trainers.detection.network import is_detector
from trainers.detection.scores import DetectionEvaluation
from trainers.errors import LaunchInvalid, TrainingError
from trainers.parallelism.launch import Launch
from trainers.parallelism.mesh import RankCoordinates
from trainers.parallelism.world import World
from trainers.plugins import load_dataset
from trainers.serving.model_folder import Model, load_model
from trainers.settings import DataOptions

_BATCH = 512  # images that one rank scores at a time: small enough for any memory
MATRIX_CLASSES = 200  # 40,000 counts, one a line: some 0.4 MB in report.json
LISTED_CONFUSIONS = 100


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
        """The score by which models are compared."""
        return self.accuracy

    def metrics(self) -> dict[str, float]:
        """For metrics.json."""
        return {"accuracy": self.accuracy, "loss": self.loss}

    def report(self, classes: Sequence[str]) -> dict[str, Any]:
        """For report.json.

        Args:
            classes: the names of the labels.

        Returns:
            `confusion`, true by predicted, or null above `MATRIX_CLASSES`: it grows with their
            square. `most_confused`: the `LISTED_CONFUSIONS` most frequent confusions.
        """
        matrix = self.confusion[:, :-1]
        return {
            "confusion": matrix.tolist() if len(classes) <= MATRIX_CLASSES else None,
            "most_confused": [
                {"true": classes[row], "predicted": classes[column], "images": images}
                for row, column, images in most_confused(matrix, LISTED_CONFUSIONS)
            ],
        }


def most_confused(confusion: Tensor, count: int) -> list[tuple[int, int, int]]:
    """The most frequent confusions, as true class, predicted class and number of images.

    Args:
        confusion: counts of shape (classes, classes), true by predicted.
        count: the largest length of the result.
    """
    wrong = confusion.clone()
    wrong.fill_diagonal_(0)
    rows, columns = wrong.nonzero(as_tuple=True)
    images = wrong[rows, columns]
    first = images.argsort(descending=True, stable=True)[:count]
    return list(
        zip(rows[first].tolist(), columns[first].tolist(), images[first].tolist(), strict=True)
    )


def evaluate(
    model: Model,
    images: ImageSource,
    classes: Sequence[str],
    world: World,
    progress: Callable[[], object] = lambda: None,
    coordinates: RankCoordinates | None = None,
) -> Evaluation | DetectionEvaluation:
    """Score `model` on images of `classes`, each rank a part of them.

    Every rank does as many forward passes as the others, so that the network may be in shards.

    Args:
        model: to score.
        images: to score it on.
        classes: the names of the labels.
        world: the ranks.
        progress: is called after each pass.
        coordinates: of this rank, if ranks share the network; by default each rank holds all of it.

    Raises:
        LaunchInvalid: a classifier on annotated images, or a detector on labelled ones.
    """
    coordinates = coordinates or RankCoordinates(data_rank=world.rank, data_ranks=world.size)
    detects = is_detector(model.network)
    if isinstance(images, AnnotatedImages) and detects:
        return evaluate_detector(model, images, classes, world, progress, coordinates)
    if isinstance(images, AnnotatedImages) or detects:
        raise LaunchInvalid(
            f"the model is a {'detector' if detects else 'classifier'}, {model.architecture}: "
            "annotated images (--dataset coco) are for detectors, labelled ones for classifiers"
        )
    return evaluate_classifier(model, images, classes, world, progress, coordinates)


def evaluate_classifier(
    model: Model,
    images: ImageSource,
    classes: Sequence[str],
    world: World,
    progress: Callable[[], object],
    coordinates: RankCoordinates,
) -> Evaluation:
    """Score `model` on images labelled by `classes`; arguments are those of `evaluate`.

    The model may know other classes. A prediction counts as right if its name is the label's, so a
    champion that does not know a class has every image of it wrong.
    """
    ours = {label: number for number, label in enumerate(classes)}
    theirs = {label: number for number, label in enumerate(model.classes)}
    to_ours = torch.tensor([ours.get(label, len(classes)) for label in model.classes])
    to_theirs = torch.tensor([theirs.get(label, -1) for label in classes])
    confusion = torch.zeros(len(classes), len(classes) + 1, dtype=torch.int64)
    loss = torch.zeros(1, dtype=torch.float64)
    model.network.eval()
    with torch.inference_mode():
        for numbers in coordinates.passes(len(images), at_once=_BATCH):
            batch = images.take(numbers if len(numbers) else torch.tensor([0]))
            logits = model.network(to_input(batch.pixels, world.device)).cpu()[: len(numbers)]
            labels = batch.labels[: len(numbers)]
            confusion.index_put_(
                (labels, to_ours[logits.argmax(dim=1)]), torch.ones_like(labels), accumulate=True
            )
            loss += _cross_entropy(logits, to_theirs[labels])
            progress()
    if not coordinates.is_counted:  # another rank has the same images
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
    """Score the model in `folder` on the held-out images of `dataset`, in that model's format.

    Args:
        folder: the champion's model folder.
        dataset: read in `image_format`.
        image_format: of the challenger.
        architecture: of the challenger; the only dotted path that the champion may name.
        world: the ranks.

    Raises:
        ModelUnreadable: there is no model of ours in the folder.
        LaunchInvalid: the champion is of another kind than the dataset.
        DataChanged: a file changed since the dataset was read.
    """

    def load() -> tuple[Model, ImageSource]:
        champion = load_model(folder, world.device, architecture)
        if champion.image_format == image_format:
            return champion, dataset.held_out
        return champion, dataset.held_out_as(champion.image_format)

    champion, images = world.run_on_all_ranks("champion", load)
    return evaluate(champion, images, dataset.classes, world)


def _cross_entropy(logits: Tensor, targets: Tensor) -> float:
    if bool((targets < 0).any()):
        return math.inf
    return functional.cross_entropy(logits, targets, reduction="sum").item()


@dataclass(frozen=True, kw_only=True)
class Options(DataOptions):
    """The command line."""

    model: Path = option(type=Path)
    architecture: str | None = option(default=None)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line above, in one process."""
    parser = argparse.ArgumentParser(
        prog="python -m trainers.evaluate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser, Options)
    options = Options(**vars(parser.parse_args(arguments)))
    world = World.join(Launch(), timeout_seconds=0)
    try:
        model = load_model(options.model, world.device, options.architecture)
        dataset = load_dataset(options.dataset, options.request(model.image_format))
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
