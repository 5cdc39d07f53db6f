"""Masks as COCO's run lengths: of zeros and ones in turn, down the columns, the first of zeros.

Compressed, a run is written as its difference to the run before the last one (the first three as
themselves), 5 bits to a character from the lowest, a sixth saying that more follow.

Source: cocodataset.org, "Data format"; the cocoapi project, `rleToString` in common/maskApi.c.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_FIRST_CHARACTER = 48
_BITS, _MORE, _SIGN = 0x1F, 0x20, 0x10
_WIDTH = 5
_PLAIN = 3  # runs that are written without a difference


def runs(mask: np.ndarray, *, left: int, top: int, width: int, height: int) -> tuple[int, ...]:
    """The run lengths of an image's mask, of which a part is given: what lies around it is 0.

    Args:
        mask: the part, bool, shape (rows, columns).
        left: the part's position on the image.
        top: the same.
        width: of the image.
        height: the same.
    """
    rows_around = np.pad(mask.T.astype(np.int8), ((0, 0), (1, 1)))
    column, row = np.nonzero(np.diff(rows_around, axis=1))
    # A run to the bottom of a column ends where one from the top of the next begins: it goes on.
    changes, times = np.unique((column + left) * height + row + top, return_counts=True)
    changes = changes[(times == 1) & (changes < width * height)]
    return tuple(np.diff(changes, prepend=0, append=width * height).tolist())


def mask(runs: Sequence[int], *, width: int, height: int) -> np.ndarray:
    """The other way: bytes of 0 and 1, shape (height, width).

    Raises:
        ValueError: the runs do not fill it.
    """
    values = np.arange(len(runs), dtype=np.uint8) % 2
    return np.repeat(values, runs).reshape(width, height).T.copy()


def compress(runs: Sequence[int]) -> str:
    """COCO's string for run lengths."""
    characters: list[str] = []
    for position, run in enumerate(runs):
        value = run - runs[position - 2] if position >= _PLAIN else run
        more = True
        while more:
            bits = value & _BITS
            value >>= _WIDTH
            more = value != (-1 if bits & _SIGN else 0)
            characters.append(chr(_FIRST_CHARACTER + bits + (_MORE if more else 0)))
    return "".join(characters)


def uncompress(text: str) -> tuple[int, ...]:
    """The run lengths that COCO's string holds.

    Raises:
        ValueError: it ends within a number, or has another character than the 64.
    """
    runs: list[int] = []
    value = shift = 0
    for character in text:
        bits = ord(character) - _FIRST_CHARACTER
        if not 0 <= bits <= _BITS + _MORE:
            raise ValueError(f"{character!r} is not a character of a compressed mask")
        value |= (bits & _BITS) << shift
        shift += _WIDTH
        if bits & _MORE:
            continue
        if bits & _SIGN:
            value -= 1 << shift
        runs.append(value + runs[-2] if len(runs) >= _PLAIN else value)
        value = shift = 0
    if shift:
        raise ValueError("a compressed mask ends within a number")
    return tuple(runs)
