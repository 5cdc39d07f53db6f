"""Places at which a crash test has its process die, as by kill -9.

Nothing but code of the same process can arm one: no setting, no environment variable. Passing one
that is not armed is a look at a variable.

Label | the process dies
--- | ---
`commit:before` | with transactions handed in, none of them in the file
`commit:within` | with all of them run, the commit not written
`commit:after` | with the commit on disk, and nobody told of it
"""

from __future__ import annotations

import os
import signal
from typing import Final

COMMIT_BEFORE: Final = "commit:before"
COMMIT_WITHIN: Final = "commit:within"
COMMIT_AFTER: Final = "commit:after"

COMMIT_POINTS: Final = (COMMIT_BEFORE, COMMIT_WITHIN, COMMIT_AFTER)


class _Armed:
    def __init__(self, label: str, passes: int) -> None:
        self.label = label
        self.passes_left = passes


_armed: _Armed | None = None


def arm(label: str, passes: int) -> None:
    """Have this process die when it comes to the point `label` for the `passes`-th time from now.

    Args:
        label: one of this module's, or of the test's own.
        passes: 1 is the next time.
    """
    global _armed  # noqa: PLW0603 - a crash is the whole process's
    _armed = _Armed(label, passes)


def crash_point(label: str) -> None:
    """Die here if the point is armed and its time has come."""
    if _armed is not None and _armed.label == label:
        _armed.passes_left -= 1
        if _armed.passes_left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
