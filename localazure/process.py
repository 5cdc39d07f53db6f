"""Child processes that do not outlive their parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent() -> Callable[[], None]:
    """A `preexec_fn` that has the kernel kill the child when this process dies, even by kill -9.

    Linux only (prctl(2)); elsewhere it does nothing, and parts clean up when they start again.
    """
    parent = os.getpid()

    def arrange() -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it died before the arrangement was made
                os._exit(1)

    return arrange
