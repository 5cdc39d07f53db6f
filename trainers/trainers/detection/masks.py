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
    return [_with_text(one) for one in encoded]


def decode(run_lengths: RunLengths) -> np.ndarray:
    """Bytes of 0 and 1, shape (height, width)."""
    return library("mask").decode(dict(run_lengths))


def compressed(
    segmentation: Mapping[str, Any] | Sequence[Sequence[float]], *, width: int, height: int
) -> RunLengths:
    """The mask of a COCO annotation: polygons `[x1, y1, x2, y2, …]`, or run lengths of any kind.

    Raises:
        ValueError: it is not of the format, or does not fill the image.
    """
    mask = library("mask")
    try:
        if isinstance(segmentation, Mapping):
            run_lengths: Any = dict(segmentation)
            if not isinstance(run_lengths["counts"], str):
                run_lengths["counts"] = [int(count) for count in run_lengths["counts"]]
                run_lengths = mask.frPyObjects(run_lengths, height, width)
            if mask.decode(run_lengths).shape != (height, width):
                raise ValueError(f"a mask that is not {height} high and {width} wide")
            return _with_text(run_lengths)
        polygons = [[float(place) for place in polygon] for polygon in segmentation]
        if any(len(polygon) < 6 or len(polygon) % 2 for polygon in polygons):  # noqa: PLR2004  # three corners
            raise ValueError("a polygon is x and y of three corners or more")
        return _with_text(mask.merge(mask.frPyObjects(polygons, height, width)))
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def _with_text(run_lengths: Mapping[str, Any]) -> RunLengths:
    counts = run_lengths["counts"]
    text = counts.decode() if isinstance(counts, bytes) else counts
    return {"size": [*run_lengths["size"]], "counts": text}
