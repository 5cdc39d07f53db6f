"""COCO's annotation file: the objects on each image.

Source: cocodataset.org, "Data format". Boxes are (x, y, width, height) in pixels. A segmentation is
a list of polygons, each `[x1, y1, x2, y2, …]`, or run lengths, as a list or as COCO's compressed
string: see `masks`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from PIL import Image

from trainers.detection import masks
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
    run_lengths: Mapping[str, Any] | None = None


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
        paths: set[str] = set()
        for entry in value["images"]:
            where = f"image {entry.get('id')}"
            if entry["file_name"] in paths:
                raise ValueError("another image has the same file_name")  # noqa: TRY301  # one exit
            paths.add(entry["file_name"])
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
    run_lengths: Mapping[str, Any] | None = None
    if isinstance(segmentation, Mapping):
        run_lengths = cast("Mapping[str, Any]", segmentation)
        masks.decode(run_lengths)  # refuses what is not a mask
    else:
        polygons = tuple(tuple(map(float, polygon)) for polygon in segmentation)
        if any(len(polygon) < 6 or len(polygon) % 2 for polygon in polygons):  # noqa: PLR2004  # three corners
            raise ValueError("a polygon is x and y of three corners or more")
    return Instance(
        category=number[int(entry["category_id"])],
        box=(left, top, left + width, top + height),
        is_crowd=bool(entry.get("iscrowd", 0)),
        polygons=polygons,
        run_lengths=run_lengths,
    )


def mask(instance: Instance, image: AnnotatedImage, *, size: int) -> np.ndarray:
    """The instance's pixels on the image scaled to `size` by `size`; without a mask, its box.

    Returns:
        Bytes of 0 and 1, shape (size, size).
    """
    if instance.run_lengths is not None:
        drawn = Image.fromarray(masks.decode(instance.run_lengths))
        return np.asarray(drawn.resize((size, size), Image.Resampling.NEAREST), dtype=np.uint8)
    left, top, right, bottom = instance.box
    corners = instance.polygons or ((left, top, right, top, right, bottom, left, bottom),)
    scale = (size / image.width, size / image.height)
    return masks.draw([np.multiply(p, scale * (len(p) // 2)).tolist() for p in corners], size=size)
