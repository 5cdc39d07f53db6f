"""The interface of tasks: the loss of a batch, and the scores on held-out samples.

The loop, checkpoints, parallelism and reports are the same for all tasks. A dataset has a task; a
user's own task is a subclass of `Task` with two methods, `loss` and `evaluate`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from trainers.data.images import Samples, SampleSource
from trainers.detection.network import is_detector
from trainers.errors import LaunchInvalid
from trainers.parallelism.devices import thread_of
from trainers.parallelism.mesh import RankCoordinates
from trainers.parallelism.world import World
from trainers.serving.model_folder import Model

Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The scores of a model on held-out samples."""

    headline_name: str
    """The name of the score by which models are compared; more is better."""
    scores: Mapping[str, float]
    """All scores by name, for metrics.json, with the headline."""
    loss: float
    """The mean loss; infinite if the model lacks a class of the data."""
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further results for report.json."""
    sample_scores: Tensor | None = None
    """The score of each held-out sample, shape (samples,), on the CPU; their mean is the headline.
    With them, the model is compared with the champion sample by sample (`comparison.json`)."""
    labels: Tensor | None = None
    """The class number of each held-out sample, by which the comparison is sliced."""

    @property
    def headline(self) -> float:
        """The score by which models are compared."""
        return self.scores[self.headline_name]

    def metrics(self) -> dict[str, float]:
        """Return the scores and the loss, for metrics.json."""
        return {**self.scores, "loss": self.loss}


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """The held-out samples, of which each rank scores a part."""

    source: SampleSource
    """The samples of all ranks."""
    world: World
    coordinates: RankCoordinates
    """The coordinates of this rank."""
    progress: Callable[[], object] = lambda: None
    """A function to call after each pass."""

    def __len__(self) -> int:
        return len(self.source)

    def passes(self, *, at_once: int) -> Iterator[tuple[Tensor, Samples]]:
        """Yield this rank's samples with their numbers, `at_once` per pass.

        All ranks do the same number of passes, since the network may be in shards. So the last pass
        may have more samples than numbers; only the first samples count. The next pass is read
        while the caller works on one.
        """

        def read(numbers: Tensor) -> Samples:
            return self.source.take(numbers if len(numbers) else torch.tensor([0]))

        passes = self.coordinates.passes(len(self.source), at_once=at_once)
        with thread_of(self.world.device, "held out") as thread:
            ahead = deque(thread.submit(read, numbers) for numbers in passes[:1])
            for number, numbers in enumerate(passes, start=1):
                ahead.extend(thread.submit(read, after) for after in passes[number : number + 1])
                yield numbers, ahead.popleft().result()
                self.progress()

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over the ranks, on the CPU; ranks that share samples count once."""
        mine = values if self.coordinates.is_counted else torch.zeros_like(values)
        return self.world.sum(mine.to(self.world.device)).cpu()

    def gather(self, value: Value) -> list[Value]:
        """Return the values of all ranks with different samples. They are pickled: plain data."""
        counted = [value] if self.coordinates.is_counted else []
        return [each for values in self.world.gather(counted) for each in values]


class Task(ABC):
    """What a network learns: its inputs, its loss and its scores."""

    inputs_are_images: ClassVar[bool] = False
    """Whether inputs are images as bytes, which augmentation may shift."""
    labels_are_classes: ClassVar[bool] = False
    """Whether labels are class numbers, which may be smoothed and mixed."""

    needs_detector: ClassVar[bool | None] = None
    """True: the model must be a detector; False: it must not; None: the task takes any model."""

    def check(self, model: Model) -> None:
        """Refuse a model of the wrong kind.

        Raises:
            LaunchInvalid: the model is a detector and must be a classifier, or the reverse.
        """
        if self.needs_detector not in {None, is_detector(model.network)}:
            kind = "classifier" if self.needs_detector else "detector"
            raise LaunchInvalid(
                f"the model is a {kind}, {model.architecture}: annotated images (--dataset coco) "
                "are for detectors, as mask-rcnn-resnet50, and labelled ones for classifiers"
            )

    def prepare(self, samples: Samples, device: torch.device) -> tuple[tuple[Any, ...], Any]:
        """Return the network's arguments and the loss's targets, on the device."""
        return (samples.inputs.to(device),), samples.labels.to(device)

    @abstractmethod
    def loss(self, output: Any, targets: Any, *, label_smoothing: float) -> Tensor:
        """Return the sum of the samples' losses.

        Args:
            output: the network's output in training mode, in 32 bits or more.
            targets: the targets from `prepare`.
            label_smoothing: the option, if `labels_are_classes`; else 0.
        """

    @abstractmethod
    def evaluate(self, model: Model, held_out: HeldOut, classes: Sequence[str]) -> Evaluation:
        """Score a model; return the same result on all ranks.

        `classes` are those of the data; the model may have others.
        """
