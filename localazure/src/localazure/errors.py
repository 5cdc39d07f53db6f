"""Errors that keep localazure or one of its parts from starting, and that its user can fix.

The text of such an error is shown without a traceback: it names the cause, the place and the
remedy. Any other exception is a defect of localazure and keeps its traceback.
"""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Generator


class StartError(Exception):
    """localazure, or a part of it, cannot start; the text says why, and what to do."""


class ConfigurationError(StartError):
    """A file that the user wrote cannot be used; names file, place and value."""


@contextlib.contextmanager
def shown_without_traceback(prefix: str = "") -> Generator[None]:
    """End the process with status 1 and the text of an error that its user can fix.

    Args:
        prefix: of the text.

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
