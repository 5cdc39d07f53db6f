"""A run's losses by step, over all of its starts."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class TrainPoint:
    """After `step` steps: the mean loss of the last one's batch, and the rate it was done at."""

    step: int
    loss: float
    learning_rate: float

    def numbers(self) -> dict[str, float]:
        """By their names in TensorBoard and MLflow."""
        return {"train_loss": self.loss, "learning_rate": self.learning_rate}


@dataclass(frozen=True, kw_only=True)
class HeldOutPoint:
    """After `step` steps: the model's scores on the held-out images."""

    step: int
    loss: float
    accuracy: float

    def numbers(self) -> dict[str, float]:
        """By their names in TensorBoard and MLflow."""
        return {"held_out_loss": self.loss, "held_out_accuracy": self.accuracy}


@dataclass(kw_only=True)
class LearningCurve:
    """Points by step. It is saved with each checkpoint, so that a resumed run has all of it."""

    train: list[TrainPoint] = field(default_factory=list[TrainPoint])
    held_out: list[HeldOutPoint] = field(default_factory=list[HeldOutPoint])

    def to_dict(self) -> dict[str, list[dict[str, float]]]:
        """As JSON has it: two lists, `train` and `held_out`."""
        return dataclasses.asdict(self)

    def to_bytes(self) -> bytes:
        """As a checkpoint has it."""
        return json.dumps(self.to_dict(), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> LearningCurve:
        """The inverse of `to_bytes`.

        Raises:
            ValueError, KeyError, TypeError: `content` is not from there.
        """
        value = json.loads(content)
        return cls(
            train=[TrainPoint(**point) for point in value["train"]],
            held_out=[HeldOutPoint(**point) for point in value["held_out"]],
        )
