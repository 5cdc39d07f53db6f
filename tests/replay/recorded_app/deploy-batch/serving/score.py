"""A batch scoring script that scores all files but those whose names say that they are damaged."""

from __future__ import annotations

from pathlib import Path


def init() -> None:
    """Nothing is loaded."""


def run(mini_batch: list[str]) -> list[str]:
    """The name of each file.

    Raises:
        ValueError: a file is damaged.
    """
    names = [Path(each).name for each in mini_batch]
    if any("damaged" in name for name in names):
        raise ValueError(f"one of {names} is damaged")
    return names
