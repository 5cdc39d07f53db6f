"""Scores a detector on held-out annotated images."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from trainers.data.images import to_input
from trainers.data.order import stream_seed
from trainers.detection.dataset import AnnotatedImages
from trainers.detection.scores import DetectionEvaluation, Scores
from trainers.parallelism.mesh import RankCoordinates
from trainers.parallelism.world import World
from trainers.serving.model_folder import Model

_AT_ONCE = 8  # images that a rank scores: their masks have their size each


def evaluate_detector(
    model: Model,
    images: AnnotatedImages,
    classes: Sequence[str],
    world: World,
    progress: Callable[[], object],
    coordinates: RankCoordinates,
) -> DetectionEvaluation:
    """Score `model` on images annotated by `classes`, each rank a part of them.

    Classes are matched by name. Detections of a class that the data lacks do not count; a class
    that the model lacks is never found.

    The loss is of proposals that the network draws. Its seed is that of the rank alone, so that the
    same weights have the same loss whenever they are scored.

    Args:
        model: to score.
        images: to score it on.
        classes: the names of the labels, which count from 1.
        world: the ranks.
        progress: is called after each pass.
        coordinates: of this rank.
    """
    network, device = model.network, world.device
    to_ours, to_theirs = _numbers(model.classes, classes), _numbers(classes, model.classes)
    is_known = set(classes) <= set(model.classes)
    scores = Scores()
    loss = torch.zeros(1, dtype=torch.float64)
    torch.manual_seed(stream_seed(0, 0, coordinates.random_stream))
    with torch.no_grad():
        for numbers in coordinates.passes(len(images), at_once=_AT_ONCE):
            # Every rank does as many passes: the network may be in shards.
            batch = images.take(numbers if len(numbers) else torch.tensor([0]))
            targets = [images.target(number) for number in batch.labels.tolist()]
            pixels = to_input(batch.pixels, device)
            network.eval()
            detections: list[dict[str, Tensor]] = network(pixels)
            if is_known:
                _set_to_return_losses(network)
                theirs = [
                    dataclasses.replace(target, labels=to_theirs[target.labels]).to_learn(device)
                    for target in targets
                ]
                losses: dict[str, Tensor] = network(pixels, theirs)
                loss += sum(float(value) for value in losses.values()) * len(numbers)
            progress()
            counted = zip(numbers.tolist(), detections, targets, strict=False)
            for number, detected, target in counted:
                on_cpu = {name: tensor.cpu() for name, tensor in detected.items()}
                scores.add(number, on_cpu, target, to_ours)
    network.eval()
    if not coordinates.is_counted:  # another rank has the same images
        scores, loss = Scores(), loss * 0
    everywhere = Scores.merged(world.gather(scores))
    mean_loss = world.sum(loss.to(device)).item() / len(images)
    return everywhere.evaluation(classes, loss=mean_loss if is_known else math.inf)


def _set_to_return_losses(network: nn.Module) -> None:
    """Set to training mode, in which networks return losses, with fixed running statistics."""
    network.train()
    for module in network.modules():
        if isinstance(getattr(module, "running_mean", None), Tensor):
            module.eval()


def _numbers(names: Sequence[str], others: Sequence[str]) -> Tensor:
    """From the label of each name to that of the same name among others; 0 if there is none."""
    labels = {name: label for label, name in enumerate(others, start=1)}
    return torch.tensor([0, *(labels.get(name, 0) for name in names)])
