"""The task of a network: from a batch to a loss, and from held-out samples to scores.

The loop, checkpoints, parallelism and reports are the same for all tasks. A dataset names its task;
a user's own is a subclass of `Task` with two methods, `loss` and `evaluate`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from torch import Tensor

from trainers.data.images import Samples, SampleSource
from trainers.detection.network import is_detector
from trainers.errors import LaunchInvalid
from trainers.parallelism.mesh import RankCoordinates
from trainers.parallelism.world import World

if TYPE_CHECKING:
    from trainers.serving.model_folder import Model

Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The scores of a model on held-out samples."""

    headline_name: str
    """The score by which models are compared; more is better."""
    scores: Mapping[str, float]
    """By name, for metrics.json; the headline is among them."""
    loss: float
    """Infinite if the model lacks a class of the data."""
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """For report.json."""

    @property
    def headline(self) -> float:
        """The score by which models are compared."""
        return self.scores[self.headline_name]

    def metrics(self) -> dict[str, float]:
        """For metrics.json."""
        return {**self.scores, "loss": self.loss}


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """The held-out samples, of which each rank scores a part."""

    source: SampleSource
    """All of them."""
    world: World
    coordinates: RankCoordinates
    """Of this rank."""
    progress: Callable[[], object] = lambda: None
    """Is called after each pass."""

    def __len__(self) -> int:
        return len(self.source)

    def passes(self, *, at_once: int) -> Iterator[tuple[Tensor, Samples]]:
        """This rank's samples with their numbers, `at_once` in a pass.

        Every rank does as many passes as the others, since the network may be in shards: in the
        last one there may be fewer numbers than samples, and only the first samples count.
        """
        for numbers in self.coordinates.passes(len(self.source), at_once=at_once):
            yield numbers, self.source.take(numbers if len(numbers) else torch.tensor([0]))
            self.progress()

    def sum(self, values: Tensor) -> Tensor:
        """The sum over the ranks, on the CPU; ranks that share samples count once."""
        mine = values if self.coordinates.is_counted else torch.zeros_like(values)
        return self.world.sum(mine.to(self.world.device)).cpu()

    def gather(self, value: Value) -> list[Value]:
        """The values of the ranks that count. They are pickled: plain data."""
        counted = [value] if self.coordinates.is_counted else []
        return [each for values in self.world.gather(counted) for each in values]


class Task(ABC):
    """A task that a network learns."""

    inputs_are_images: ClassVar[bool] = False
    """Whether inputs are bytes of images, which augmentation may shift."""
    labels_are_classes: ClassVar[bool] = False
    """Whether labels are numbers of classes, which may be smoothed and mixed."""

    needs_detector: ClassVar[bool | None] = None
    """Whether a model has to be a detector, or may not be one; None: the task takes any model."""

    def check(self, model: Model) -> None:
        """Refuse a model of the wrong kind.

        Raises:
            LaunchInvalid: it is a detector, and has to be a classifier, or the other way.
        """
        if self.needs_detector not in {None, is_detector(model.network)}:
            kind = "classifier" if self.needs_detector else "detector"
            raise LaunchInvalid(
                f"the model is a {kind}, {model.architecture}: annotated images (--dataset coco) "
                "are for detectors, as mask-rcnn-resnet50, and labelled ones for classifiers"
            )

    def prepare(self, samples: Samples, device: torch.device) -> tuple[tuple[Any, ...], Any]:
        """The network's arguments, and the targets of the loss, on the device."""
        return (samples.inputs.to(device),), samples.labels.to(device)

    @abstractmethod
    def loss(self, output: Any, targets: Any, *, label_smoothing: float) -> Tensor:
        """The sum of the samples' losses.

        Args:
            output: of the network in training mode, in 32 bits or more.
            targets: from `prepare`.
            label_smoothing: of the labels, where `labels_are_classes`; else 0.
        """

    @abstractmethod
    def evaluate(self, model: Model, held_out: HeldOut, classes: Sequence[str]) -> Evaluation:
        """Score a model, alike on all ranks.

        `classes` are the data's; the model may have others.
        """
