"""Points at which a crash test ends its process, as kill -9 does.

Only code of the same process can arm a point; no setting and no environment variable can. A point
that is not armed costs one look-up.

Label | the process dies
--- | ---
`commit:before` | with transactions handed in, none of them in the file
`commit:within` | with all of them run, the commit not written
`commit:after` | with the commit on disk, before any caller is notified
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
"""The label of the armed point, and how many passes are left."""


def arm(label: str, passes: int) -> None:
    """End this process when it reaches the point `label` for the `passes`-th time from now.

    Args:
        label: one of this module's, or of the test's own.
        passes: 1 is the next time.
    """
    _armed.clear()
    _armed[label] = passes


def crash_point(label: str) -> None:
    """End the process if the point is armed and has been passed often enough."""
    if label in _armed:
        _armed[label] -= 1
        if _armed[label] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
