"""The folder for all state."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Generator
from pathlib import Path

from localazure.errors import StartError

# More than the file system may have left in the block of a small file.
_PROBE_BYTES = 64 * 1024


def make_state_folder(state: Path) -> None:
    """Create the folder, with a `.gitignore`, because it holds keys and data.

    Raises:
        StartError: it cannot be created or written.
    """
    with writable(state):
        state.mkdir(parents=True, exist_ok=True)
        ignore = state / ".gitignore"
        if not ignore.exists():
            ignore.write_text("# Keys and data of localazure.\n*\n")
        with tempfile.TemporaryFile(dir=state) as probe:
            probe.write(bytes(_PROBE_BYTES))


@contextlib.contextmanager
def writable(state: Path) -> Generator[None]:
    """Turn errors of the file system into one that says so.

    Raises:
        StartError: a file in the folder could not be written.
    """
    try:
        yield
    except OSError as error:
        where = state if error.filename is None else error.filename
        raise StartError(
            f"state folder {state} cannot be written ({where}: {error.strerror}): make it a folder "
            "that you may write, with space left, or give another one with --state"
        ) from None
