"""Detection of objects, with boxes and masks. The network itself computes the losses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from trainers.data.images import Samples, to_input
from trainers.data.order import stream_seed
from trainers.detection.coco import AnnotatedImages, Target
from trainers.detection.scores import Scores
from trainers.serving.model_folder import Model
from trainers.tasks.task import Evaluation, HeldOut, Task

_AT_ONCE = 8  # images per rank and pass: each mask is as large as its image


class Detection(Task):
    """The task of annotated images: each has objects with a class, a box and a mask.

    Args:
        train: the images to train on. A sample's label is its number among them.
    """

    needs_detector = True

    def __init__(self, train: AnnotatedImages) -> None:
        self._train = train

    def prepare(self, samples: Samples, device: torch.device) -> tuple[tuple[Any, ...], Any]:
        """Return the images with their objects, and the number of images."""
        objects = [_to_learn(self._train.target(n), device) for n in samples.labels.tolist()]
        return (to_input(samples.inputs, device), objects), len(samples)

    def loss(self, output: Any, targets: Any, *, label_smoothing: float) -> Tensor:
        """Return the sum of the network's losses, times the number of images: each is their mean.

        Each rank draws the proposals for its own images. So the loss depends on the number of
        ranks, unlike a classifier's.
        """
        del label_smoothing
        losses = cast("Mapping[str, Tensor]", output)
        return torch.stack(list(losses.values())).sum() * targets

    def evaluate(self, model: Model, held_out: HeldOut, classes: Sequence[str]) -> Evaluation:
        """Return COCO's average precision, and the mean of the training losses' sum.

        Classes are matched by name. Detections of a class that the data lacks do not count; a class
        that the model lacks is never found.

        The loss depends on random proposals. Their seed depends on the rank only, so that the same
        weights always get the same loss.
        """
        network, device = model.network, held_out.world.device
        images = cast("AnnotatedImages", held_out.source)
        to_ours, to_theirs = _numbers(model.classes, classes), _numbers(classes, model.classes)
        is_known = set(classes) <= set(model.classes)
        scores = Scores()
        loss = torch.full((1,), 0.0 if is_known else math.inf, dtype=torch.float64)
        torch.manual_seed(stream_seed(0, 0, held_out.coordinates.random_stream))
        with torch.no_grad():
            for numbers, samples in held_out.passes(at_once=_AT_ONCE):
                targets = [images.target(number) for number in samples.labels.tolist()]
                pixels = to_input(samples.inputs, device)
                network.eval()
                detections: list[dict[str, Tensor]] = network(pixels)
                if is_known:
                    _set_to_return_losses(network)
                    objects = [_to_learn(target, device, to_theirs) for target in targets]
                    losses: dict[str, Tensor] = network(pixels, objects)
                    loss += sum(float(value) for value in losses.values()) * len(numbers)
                counted = zip(numbers, detections, targets, strict=False)
                for _, detected, target in counted:
                    on_cpu = {name: tensor.cpu() for name, tensor in detected.items()}
                    scores.add(on_cpu, target, to_ours)
        network.eval()
        by_kind = Scores.merged(held_out.gather(scores)).average_precision(classes)
        flat = {
            f"{kind}_{name}": by_name[name]
            for kind, by_name in by_kind.items()
            for name in ("ap", "ap_50", "ap_75")
        }
        headline = by_kind.get("mask", by_kind["box"])["ap"]
        return Evaluation(
            headline_name="average_precision",
            scores={"average_precision": headline, **flat},
            loss=held_out.sum(loss).item() / len(held_out),
            details={"average_precision": by_kind},
        )


def _to_learn(target: Target, device: torch.device, numbers: Tensor | None = None) -> Target:
    """Return torchvision's targets, without crowds. `numbers` maps labels to the network's."""
    labels = target["labels"] if numbers is None else numbers[target["labels"]]
    tensors = {"boxes": target["boxes"], "labels": labels, "masks": target["masks"].byte()}
    single = target["iscrowd"] == 0
    return {name: tensor[single].to(device) for name, tensor in tensors.items()}


def _set_to_return_losses(network: nn.Module) -> None:
    """Set the network to training mode, so that it returns losses, but fix running statistics."""
    network.train()
    for module in network.modules():
        if isinstance(getattr(module, "running_mean", None), Tensor):
            module.eval()


def _numbers(names: Sequence[str], others: Sequence[str]) -> Tensor:
    """Map the label of each name to the label of that name in `others`; 0 if there is none."""
    labels = {name: label for label, name in enumerate(others, start=1)}
    return torch.tensor([0, *(labels.get(name, 0) for name in names)])
