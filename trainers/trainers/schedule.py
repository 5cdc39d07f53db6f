"""The learning rate as a pure function of the step: checkpoints do not contain it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

Schedule = Literal["cosine", "step", "constant"]
COSINE: Schedule = "cosine"
STEP: Schedule = "step"
CONSTANT: Schedule = "constant"

# Without warm-up, large batches diverge or stall early (arXiv 1706.02677, section 2.2).
WARM_UP_FRACTION = 0.1
_DECAY = 0.1  # of a step schedule: arXiv 1512.03385, section 3.4


def warm_up_steps(steps: int, steps_per_epoch: int, epochs: float | None) -> int:
    """Steps of warm-up: `epochs` of the data, or by default a tenth of the run; 1 or more.

    With a larger global batch, the same epochs have fewer steps.
    """
    wanted = steps * WARM_UP_FRACTION if epochs is None else epochs * steps_per_epoch
    return max(1, min(steps, round(wanted)))


def decay_steps(epochs: Sequence[float], steps_per_epoch: int) -> tuple[int, ...]:
    """The steps at which these epochs end."""
    return tuple(round(epoch * steps_per_epoch) for epoch in epochs)


def learning_rate(
    step: int,
    *,
    steps: int,
    peak: float,
    warm_up: int,
    schedule: Schedule = COSINE,
    decay_at: Sequence[int] = (),
) -> float:
    """Linear warm-up, then half a cosine down to 0, or steps down, or the peak to the end.

    Args:
        step: counted from 0, below `steps`.
        steps: steps of the whole run.
        peak: the highest rate, reached once.
        warm_up: steps of warm-up, from `warm_up_steps`.
        schedule: what follows the warm-up.
        decay_at: of a step schedule: from each of these steps on, the rate is a tenth.

    Source: arXiv 1608.03983 (cosine), arXiv 1706.02677 (warm-up, steps).
    """
    if step < warm_up:
        return peak * (step + 1) / warm_up
    if schedule == CONSTANT:
        return peak
    if schedule == STEP:
        return peak * _DECAY ** sum(step >= begin for begin in decay_at)
    progress = (step - warm_up) / max(1, steps - warm_up)
    return peak * 0.5 * (1 + math.cos(math.pi * progress))
