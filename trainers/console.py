"""Lines for people and programs on standard output. Only rank 0 writes them."""

from __future__ import annotations

import sys


def write_line(line: str) -> None:
    """Write and flush, so that a reader sees each line when it is written."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def discard_line(line: str) -> None:
    """Write nothing: what ranks other than 0 log."""
    del line
