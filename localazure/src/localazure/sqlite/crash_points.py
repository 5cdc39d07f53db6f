"""Points at which a crash test ends its process like kill -9.

Only code of the same process can arm a point; no setting or environment variable does. A point that
is not armed costs one look-up.

Label | the process dies
--- | ---
`commit:before` | after transactions were submitted, before any of them runs
`commit:within` | after all of them ran, before the commit
`commit:after` | after the commit is on disk, before any caller is notified
"""

from __future__ import annotations

import os
import signal
from typing import Final

COMMIT_BEFORE: Final = "commit:before"
COMMIT_WITHIN: Final = "commit:within"
COMMIT_AFTER: Final = "commit:after"

COMMIT_POINTS: Final = (COMMIT_BEFORE, COMMIT_WITHIN, COMMIT_AFTER)


_armed: dict[str, int] = {}
"""The label of the armed point, and the number of passes left."""


def arm(label: str, passes: int) -> None:
    """End this process when it passes the point `label` for the `passes`-th time from now.

    Args:
        label: a label of this module or of the test.
        passes: 1: the next time.
    """
    _armed.clear()
    _armed[label] = passes


def crash_point(label: str) -> None:
    """End the process if the point is armed and has been passed often enough."""
    if label in _armed:
        _armed[label] -= 1
        if _armed[label] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
