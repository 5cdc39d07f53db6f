"""Masks as COCO's run lengths, by faster-coco-eval's mask functions.

Source: cocodataset.org, "Data format".
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainers.errors import LaunchInvalid

RunLengths = dict[str, Any]
"""`{"size": [height, width], "counts": compressed text}`."""

Polygons = Sequence[Sequence[float]]


def library(module: str) -> Any:
    """A module of `faster_coco_eval.core`, which only detection needs.

    Raises:
        LaunchInvalid: it is not installed.
    """
    try:
        return importlib.import_module(f"faster_coco_eval.core.{module}")
    except ImportError as error:
        raise LaunchInvalid(
            f"detection needs faster-coco-eval, which cannot be imported ({error}): install it"
        ) from error


def encode(masks: np.ndarray) -> list[RunLengths]:
    """Masks of 0 and 1, shape (N, height, width), as run lengths."""
    if not len(masks):
        return []
    encoded = library("mask").encode(np.asfortranarray(masks.astype(np.uint8).transpose(1, 2, 0)))
    return [{"size": [*one["size"]], "counts": one["counts"].decode()} for one in encoded]


def decode(run_lengths: Mapping[str, Any]) -> np.ndarray:
    """Bytes of 0 and 1, shape (height, width); `counts` is compressed text or a list of lengths.

    Raises:
        ValueError: the run lengths are not of the format, or do not fill the mask.
    """
    mask = library("mask")
    rows, columns = run_lengths["size"]
    counts = run_lengths["counts"]
    try:
        if not isinstance(counts, str):
            run_lengths = mask.frPyObjects(
                {"size": [rows, columns], "counts": list(map(int, counts))}, rows, columns
            )
        return mask.decode(dict(run_lengths))
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def draw(polygons: Polygons, *, size: int) -> np.ndarray:
    """The pixels inside of polygons `[x1, y1, x2, y2, ...]`: bytes, shape (size, size)."""
    mask = library("mask")
    drawn = mask.frPyObjects([list(polygon) for polygon in polygons], size, size)
    return mask.decode(mask.merge(drawn))
