"""What keeps localazure or one of its parts from starting, and is for its user to mend.

The text of such an error is shown as it is, without a traceback: it says what is wrong, where, and
how to mend it. Everything else that is raised is a defect of ours and keeps its traceback.
"""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Generator


class StartError(Exception):
    """localazure, or a part of it, cannot start as asked; says why and how to mend it."""


class ConfigurationError(StartError):
    """A file that the user wrote cannot be used; names file, place and value."""


@contextlib.contextmanager
def shown_without_traceback(prefix: str = "") -> Generator[None]:
    """End the process with status 1 and the error's own words where its user can mend it.

    Args:
        prefix: stands before the words.

    Raises:
        SystemExit: a `StartError`, or a port that is taken.
    """
    try:
        yield
    except StartError as error:
        sys.exit(f"{prefix}{error}")
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        sys.exit(f"{prefix}{error.strerror}: end what listens there, or take another port")
