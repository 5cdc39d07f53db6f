"""The learning rate as a pure function of the step, so that a checkpoint need not carry it."""

from __future__ import annotations

import math

# Without warm-up, large batches diverge or stall early (arXiv 1706.02677, section 2.2).
WARM_UP_FRACTION = 0.1


def learning_rate(step: int, *, steps: int, peak: float) -> float:
    """Linear warm-up over the first tenth of the steps, then half a cosine down to 0.

    Args:
        step: counted from 0, below `steps`.
        steps: steps of the whole run.
        peak: the highest rate, reached once.

    Source: arXiv 1608.03983 (cosine), arXiv 1706.02677 (warm-up).
    """
    warm_up = max(1, round(steps * WARM_UP_FRACTION))
    if step < warm_up:
        return peak * (step + 1) / warm_up
    progress = (step - warm_up) / max(1, steps - warm_up)
    return peak * 0.5 * (1 + math.cos(math.pi * progress))
