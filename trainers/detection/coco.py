"""COCO's annotation file: the objects on each image.

Source: cocodataset.org, "Data format". Boxes are (x, y, width, height) in pixels. A segmentation is
a list of polygons, each `[x1, y1, x2, y2, …]`, or run lengths, as a list or as COCO's compressed
string: see `run_length`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from trainers.detection import run_length
from trainers.errors import DataRejected

Polygons = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One object on an image."""

    category: int
    """Its position in `Annotations.categories`."""
    box: tuple[float, float, float, float]
    """Left, top, right, bottom, in pixels of the image."""
    is_crowd: bool
    """Many objects under one mask: not trained on, and its detections do not count as wrong."""
    polygons: Polygons = ()
    runs: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class AnnotatedImage:
    """An image by its path below the folder, its size in pixels, and its objects."""

    path: str
    width: int
    height: int
    instances: tuple[Instance, ...]


@dataclass(frozen=True, kw_only=True)
class Annotations:
    """An annotation file; categories by their names, in the order of their ids."""

    categories: tuple[str, ...]
    images: tuple[AnnotatedImage, ...]


def parse(content: bytes, *, name: str) -> Annotations:
    """Read an annotation file.

    Args:
        content: JSON.
        name: for errors.

    Raises:
        DataRejected: it is not of the format; the message says where.
    """
    where = "the file"
    try:
        value = json.loads(content)
        ids = sorted((int(entry["id"]), str(entry["name"])) for entry in value["categories"])
        number = {category: position for position, (category, _) in enumerate(ids)}
        instances: dict[int, list[Instance]] = {}
        for entry in value["annotations"]:
            where = f"annotation {entry.get('id')}"
            instances.setdefault(int(entry["image_id"]), []).append(_instance(entry, number))
        images: list[AnnotatedImage] = []
        for entry in value["images"]:
            where = f"image {entry.get('id')}"
            images.append(
                AnnotatedImage(
                    path=str(entry["file_name"]),
                    width=int(entry["width"]),
                    height=int(entry["height"]),
                    instances=tuple(instances.pop(int(entry["id"]), ())),
                )
            )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataRejected(
            f"{name}: {where}: {type(error).__name__}: {error}: not a file of COCO's format"
        ) from error
    if instances:
        raise DataRejected(f"{name} has annotations of images that it lacks: {sorted(instances)}")
    return Annotations(categories=tuple(name for _, name in ids), images=tuple(images))


def _instance(entry: Mapping[str, Any], number: Mapping[int, int]) -> Instance:
    left, top, width, height = (float(value) for value in entry["bbox"])
    if not (width >= 0 and height >= 0):
        raise ValueError(f"a box {width} wide and {height} high")
    segmentation = entry.get("segmentation") or ()
    polygons: Polygons = ()
    runs: tuple[int, ...] = ()
    if isinstance(segmentation, Mapping):
        counts = segmentation["counts"]
        runs = run_length.uncompress(counts) if isinstance(counts, str) else tuple(map(int, counts))
        rows, columns = segmentation["size"]
        if min(runs, default=0) < 0 or sum(runs) != rows * columns:
            raise ValueError(f"runs that do not fill {rows} x {columns} pixels")
    else:
        polygons = tuple(tuple(map(float, polygon)) for polygon in segmentation)
        if any(len(polygon) < 6 or len(polygon) % 2 for polygon in polygons):  # noqa: PLR2004  # three corners
            raise ValueError("a polygon is x and y of three corners or more")
    return Instance(
        category=number[int(entry["category_id"])],
        box=(left, top, left + width, top + height),
        is_crowd=bool(entry.get("iscrowd", 0)),
        polygons=polygons,
        runs=runs,
    )


def mask(instance: Instance, image: AnnotatedImage, *, size: int) -> np.ndarray:
    """The instance's pixels on the image scaled to `size` by `size`; without a mask, its box.

    Returns:
        Bytes of 0 and 1, shape (size, size).
    """
    if instance.runs:
        drawn = run_length.mask(instance.runs, width=image.width, height=image.height)
        resized = Image.fromarray(drawn).resize((size, size), Image.Resampling.NEAREST)
        return np.asarray(resized, dtype=np.uint8)
    left, top, right, bottom = instance.box
    corners = instance.polygons or ((left, top, right, top, right, bottom, left, bottom),)
    canvas = Image.new("L", (size, size))
    draw = ImageDraw.Draw(canvas)
    for polygon in corners:
        draw.polygon(_scaled(polygon, size / image.width, size / image.height), fill=1)
    return np.asarray(canvas, dtype=np.uint8)


def _scaled(polygon: Sequence[float], x_by: float, y_by: float) -> list[tuple[float, float]]:
    """Corners lie between pixels; Pillow's lie in their middles."""
    pairs = zip(polygon[::2], polygon[1::2], strict=True)
    return [(x * x_by - 0.5, y * y_by - 0.5) for x, y in pairs]
