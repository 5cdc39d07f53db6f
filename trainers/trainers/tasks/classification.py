"""Classification of images: cross-entropy, accuracy and confusions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from trainers.data.images import Samples, images_at_once, to_input
from trainers.serving.model_folder import Model
from trainers.tasks.task import Evaluation, HeldOut, Task

_AT_ONCE = 512  # images per rank and pass, if they are small
MATRIX_CLASSES = 200  # 40,000 counts, one per line: about 0.4 MB in report.json
LISTED_CONFUSIONS = 100


class Classification(Task):
    """The task of labelled images: each has one class."""

    inputs_are_images = True
    labels_are_classes = True
    needs_detector = False

    def prepare(self, samples: Samples, device: torch.device) -> tuple[tuple[Any, ...], Any]:
        """Return images as numbers from -1 to 1, and class numbers."""
        return (to_input(samples.inputs, device),), samples.labels.to(device)

    def loss(self, output: Any, targets: Any, *, label_smoothing: float) -> Tensor:
        """Return the summed cross-entropy; targets are class numbers or, mixed, probabilities."""
        return functional.cross_entropy(
            output, targets, reduction="sum", label_smoothing=label_smoothing
        )

    def evaluate(self, model: Model, held_out: HeldOut, classes: Sequence[str]) -> Evaluation:
        """Return accuracy, mean cross-entropy in nats, and confusions.

        The model may have other classes than the data; they are compared by name. So a champion
        that lacks a class is wrong for each of its images.
        """
        ours = {label: number for number, label in enumerate(classes)}
        theirs = {label: number for number, label in enumerate(model.classes)}
        to_ours = torch.tensor([ours.get(label, len(classes)) for label in model.classes])
        to_theirs = torch.tensor([theirs.get(label, -1) for label in classes])
        # True class by predicted class; the last column counts classes that the data lacks.
        confusion = torch.zeros(len(classes), len(classes) + 1, dtype=torch.int64)
        loss = torch.zeros(1, dtype=torch.float64)
        # Of each sample, on the rank that scores it: twice its label, and whether it is right.
        told = torch.zeros(len(held_out), dtype=torch.int64)
        at_once = images_at_once(model.image_format, at_most=_AT_ONCE)
        model.network.eval()
        # DTensors decompose each linear layer in inference mode: the first call takes 0.6 s longer.
        with torch.no_grad():
            for numbers, samples in held_out.passes(at_once=at_once):
                arguments, _ = self.prepare(samples, held_out.world.device)
                logits: Tensor = model.network(*arguments).cpu()[: len(numbers)]
                labels = samples.labels[: len(numbers)]
                predicted = to_ours[logits.argmax(dim=1)]
                confusion.index_put_((labels, predicted), torch.ones_like(labels), accumulate=True)
                loss += _cross_entropy(logits, to_theirs[labels])
                told[numbers] = 2 * labels + (predicted == labels)
        confusion, loss, told = (held_out.sum(each) for each in (confusion, loss, told))
        return Evaluation(
            headline_name="accuracy",
            scores={"accuracy": confusion.diagonal().sum().item() / len(held_out)},
            loss=loss.item() / len(held_out),
            details=confusions(confusion[:, :-1], classes),
            sample_scores=(told % 2).double(),
            labels=told // 2,
        )


def confusions(matrix: Tensor, classes: Sequence[str]) -> dict[str, Any]:
    """Describe confusions for report.json, from counts (classes, classes), true by predicted.

    Returns:
        `confusion`: the counts, or null for more than `MATRIX_CLASSES` classes.
        `most_confused`: the `LISTED_CONFUSIONS` most frequent confusions.
    """
    wrong = matrix.clone()
    wrong.fill_diagonal_(0)
    rows, columns = wrong.nonzero(as_tuple=True)
    images = wrong[rows, columns]
    first = images.argsort(descending=True, stable=True)[:LISTED_CONFUSIONS].tolist()
    return {
        "confusion": matrix.tolist() if len(classes) <= MATRIX_CLASSES else None,
        "most_confused": [
            {
                "true": classes[int(rows[position])],
                "predicted": classes[int(columns[position])],
                "images": int(images[position]),
            }
            for position in first
        ],
    }


def _cross_entropy(logits: Tensor, targets: Tensor) -> float:
    if bool((targets < 0).any()):
        return math.inf
    return functional.cross_entropy(logits, targets, reduction="sum").item()
