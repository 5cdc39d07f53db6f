"""COCO's annotation file: the objects on each image.

Source: cocodataset.org, "Data format". Boxes are (x, y, width, height) in pixels. A segmentation is
a list of polygons, each `[x1, y1, x2, y2, …]`, or run lengths, as a list or as COCO's compressed
string: see `masks`. Without one, the mask is the box.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainers.detection import masks
from trainers.detection.masks import RunLengths
from trainers.errors import DataRejected


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One object on an image."""

    category: int
    """Its position in `Annotations.categories`."""
    box: tuple[float, float, float, float]
    """Left, top, right, bottom, in pixels of the image."""
    is_crowd: bool
    """Many objects under one mask: not trained on, and its detections do not count as wrong."""
    mask: RunLengths
    """Of the image's size."""


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
        sizes: dict[int, tuple[int, int]] = {}
        paths: dict[str, int] = {}
        for entry in value["images"]:
            where = f"image {entry.get('id')}"
            if entry["file_name"] in paths:
                raise ValueError("another image has the same file_name")  # noqa: TRY301  # one exit
            paths[str(entry["file_name"])] = int(entry["id"])
            sizes[int(entry["id"])] = int(entry["width"]), int(entry["height"])
        instances: dict[int, list[Instance]] = {image: [] for image in sizes}
        for entry in value["annotations"]:
            where = f"annotation {entry.get('id')}"
            image = int(entry["image_id"])
            if image not in sizes:
                raise ValueError(f"the file lacks its image {image}")  # noqa: TRY301  # one exit
            instances[image].append(_instance(entry, number, *sizes[image]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataRejected(
            f"{name}: {where}: {type(error).__name__}: {error}: not a file of COCO's format"
        ) from error
    images = [
        AnnotatedImage(
            path=path,
            width=sizes[image][0],
            height=sizes[image][1],
            instances=tuple(instances[image]),
        )
        for path, image in paths.items()
    ]
    return Annotations(categories=tuple(name for _, name in ids), images=tuple(images))


def _instance(
    entry: Mapping[str, Any], number: Mapping[int, int], width: int, height: int
) -> Instance:
    left, top, across, down = (float(value) for value in entry["bbox"])
    if not (across >= 0 and down >= 0):
        raise ValueError(f"a box {across} wide and {down} high")
    right, bottom = left + across, top + down
    corners = [left, top, right, top, right, bottom, left, bottom]
    return Instance(
        category=number[int(entry["category_id"])],
        box=(left, top, right, bottom),
        is_crowd=bool(entry.get("iscrowd", 0)),
        mask=masks.compressed(entry.get("segmentation") or [corners], width=width, height=height),
    )
