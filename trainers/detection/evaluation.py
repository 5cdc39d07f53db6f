"""A detector on annotated images that it has not seen."""

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
from trainers.parallelism.mesh import Place
from trainers.parallelism.world import World
from trainers.serving.model_folder import Model

_AT_ONCE = 8  # images that a rank scores: their masks have their size each


def evaluate_detector(
    model: Model,
    images: AnnotatedImages,
    classes: Sequence[str],
    world: World,
    progress: Callable[[], object],
    place: Place,
) -> DetectionEvaluation:
    """Score `model` on images annotated by `classes`, each rank a part of them.

    Classes are matched by name. Detections of a class that the data does not have count neither
    way; a class that the model does not know is never found.

    The loss is of proposals that the network draws. They follow from the image's place and the
    rank's alone, so that the same weights have the same loss whenever they are scored.

    Args:
        model: what is scored.
        images: what it is scored on.
        classes: the names of the labels, which count from 1.
        world: the ranks.
        progress: is called after each pass.
        place: of this rank.
    """
    network, device = model.network, world.device
    to_ours, to_theirs = _numbers(model.classes, classes), _numbers(classes, model.classes)
    is_known = set(classes) <= set(model.classes)
    scores = Scores(classes=len(classes))
    loss = torch.zeros(1, dtype=torch.float64)
    torch.manual_seed(stream_seed(0, 0, place.random_stream))
    with torch.no_grad():
        for numbers in place.passes(len(images), at_once=_AT_ONCE):
            # Every rank does as many passes: the network may be in shards.
            batch = images.take(numbers if len(numbers) else torch.tensor([0]))
            targets = [images.target(number) for number in batch.labels.tolist()]
            pixels = to_input(batch.pixels, device)
            network.eval()
            detections: list[dict[str, Tensor]] = network(pixels)
            if is_known:
                _ask_for_losses(network)
                theirs = [
                    dataclasses.replace(target, labels=to_theirs[target.labels]).to_learn(device)
                    for target in targets
                ]
                losses: dict[str, Tensor] = network(pixels, theirs)
                loss += sum(float(value) for value in losses.values()) * len(numbers)
            progress()
            for detected, target, _ in zip(detections, targets, numbers, strict=False):
                on_cpu = {name: tensor.cpu() for name, tensor in detected.items()}
                scores.add(on_cpu, target, to_ours)
    network.eval()
    if not place.is_counted:  # another rank has the same images
        scores, loss = Scores(classes=len(classes)), loss * 0
    everywhere = Scores.together(world.gather(scores))
    mean_loss = world.sum(loss.to(device)).item() / len(images)
    return everywhere.evaluation(classes, loss=mean_loss if is_known else math.inf)


def _ask_for_losses(network: nn.Module) -> None:
    """Networks give them in training only; their running statistics are used and left alone."""
    network.train()
    for module in network.modules():
        if isinstance(getattr(module, "running_mean", None), Tensor):
            module.eval()


def _numbers(names: Sequence[str], others: Sequence[str]) -> Tensor:
    """From the label of each name to that of the same name among others; 0 if there is none."""
    labels = {name: label for label, name in enumerate(others, start=1)}
    return torch.tensor([0, *(labels.get(name, 0) for name in names)])
