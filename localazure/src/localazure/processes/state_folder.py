"""The folder for all state. Only its owner may read it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Generator
from pathlib import Path

from localazure.errors import StartError

# More than the file system may have left in the block of a small file.
_PROBE_BYTES = 64 * 1024
_IGNORE = "# Keys and data of localazure.\n*\n"
_USERS_UMASK = "LOCALAZURE_USERS_UMASK"


@contextlib.contextmanager
def keeping_private() -> Generator[None]:
    """Let only the owner read what this process and its children create meanwhile."""
    before = os.umask(0o077)
    is_first = _USERS_UMASK not in os.environ  # the children's is no longer the user's
    os.environ.setdefault(_USERS_UMASK, str(before))
    try:
        yield
    finally:
        os.umask(before)
        if is_first:
            del os.environ[_USERS_UMASK]


def users_umask() -> int:
    """The umask for programs of the user; -1 (for `subprocess`): that of this process."""
    return int(os.environ.get(_USERS_UMASK, "-1"))


def make_state_folder(state: Path) -> None:
    """Create the folder, with a `.gitignore`, because it holds keys and data.

    Raises:
        StartError: it cannot be created or written.
    """
    with writable(state):
        state.mkdir(parents=True, exist_ok=True)
        ignore = state / ".gitignore"
        if not ignore.exists():
            ignore.write_text(_IGNORE)
        with tempfile.TemporaryFile(dir=state) as probe:
            probe.write(bytes(_PROBE_BYTES))
        # Another file says that the folder is the user's own.
        if ignore.read_bytes() == _IGNORE.encode():
            state.chmod(0o700)


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
