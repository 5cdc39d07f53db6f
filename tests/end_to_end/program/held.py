"""An augmentation that changes nothing; it blocks the training while the file PAUSE exists."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

# One pass to prepare, and twenty steps; their checkpoint is written while the training is blocked.
PASSES = 21
POLL_SECONDS = 0.05


def after_first_checkpoint(num_classes: int) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return an augmentation that blocks the training after `PASSES` batches."""
    del num_classes
    pause, passes = Path(os.environ["PAUSE"]), 0

    def hold(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal passes
        passes += 1
        while passes > PASSES and pause.exists():
            time.sleep(POLL_SECONDS)
        return images, labels

    return hold
