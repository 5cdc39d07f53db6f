"""A run's losses by step, over all of its starts."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field

Point = dict[str, float]
"""Numbers of after `step` steps."""


@dataclass(kw_only=True)
class LearningCurve:
    """Points by step. It is saved with each checkpoint, so that a resumed run has all of it."""

    train: list[Point] = field(default_factory=list[Point])
    """`step`, the mean `loss` of its batch, and the `learning_rate` that it was done at."""
    held_out: list[Point] = field(default_factory=list[Point])
    """`step`, and the model's `loss` and `accuracy` on the held-out images."""

    def to_bytes(self) -> bytes:
        """As a checkpoint has it."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> LearningCurve:
        """The inverse of `to_bytes`."""
        return cls(**json.loads(content))
