"""Errors that prevent localazure or one of its parts from starting, and that users can fix.

The message is shown without a traceback: it names the cause, the location and the remedy. Any other
exception is a bug of localazure and is shown with its traceback.
"""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Generator


class StartError(Exception):
    """localazure, or a part of it, cannot start. The message says why, and what to do."""


class ConfigurationError(StartError):
    """A file of the user is not valid. The message names file, location and value."""


@contextlib.contextmanager
def shown_without_traceback(prefix: str = "") -> Generator[None]:
    """Turn an error that users can fix into its message and exit status 1.

    Args:
        prefix: text before the message.

    Raises:
        SystemExit: a `StartError` was raised, or a port is in use.
    """
    try:
        yield
    except StartError as error:
        sys.exit(f"{prefix}{error}")
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        sys.exit(f"{prefix}{error.strerror}: end what listens there, or take another port")
