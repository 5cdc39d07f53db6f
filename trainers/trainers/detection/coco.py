"""COCO annotation files: the objects on each image. faster-coco-eval encodes and decodes masks.

Source: cocodataset.org, "Data format". Boxes are (x, y, width, height) in pixels. A segmentation is
a list of polygons, each `[x1, y1, x2, y2, …]`, or run lengths, as a list or as COCO's compressed
string. An object without a segmentation gets its box as mask.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from trainers.data import samples
from trainers.data.folder import read_images
from trainers.data.image_file import ImageFormat, pixels_of, stretched
from trainers.data.images import Samples
from trainers.data.manifest import Entry
from trainers.errors import DataRejected
from trainers.vision import library

RunLengths = dict[str, Any]
"""An encoded mask: `{"size": [height, width], "counts": compressed text or bytes}`."""
Target = dict[str, Tensor]
"""The objects on one image, in pixels of the scaled image, as torchmetrics takes them: `boxes`
(left, top, right, bottom), shape (O, 4), `labels` (O,), `masks` (O, size, size), `iscrowd` (O,)."""

_MASKS = "faster_coco_eval.core.mask"
_LEAST_PIXELS = 1.0  # sides of a box on the scaled image: torchvision refuses empty boxes


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One object on an image."""

    label: int
    """The position, from 1, of the category in the order of the file's ids; 0 is the background."""
    box: tuple[float, float, float, float]
    """Left, top, right, bottom, in pixels of the image."""
    is_crowd: bool
    """Whether one mask covers many objects: not trained on, and detections in it are not wrong."""
    mask: RunLengths
    """In the size of the image."""


@dataclass(frozen=True, kw_only=True)
class AnnotatedImage:
    """An image: its path below the data folder, its size in pixels, and its objects."""

    path: str
    width: int
    height: int
    instances: list[Instance]

    def target(self, size: int) -> Target:
        """Return the objects on the image, scaled to a square. Each call draws the masks again."""
        scale = (size / self.width, size / self.height) * 2
        boxes = np.array([each.box for each in self.instances]).reshape(-1, 4) * scale
        boxes = np.clip(boxes, 0, size)
        large = ((boxes[:, 2:] - boxes[:, :2]) >= _LEAST_PIXELS).all(axis=1)
        kept = [self.instances[position] for position in np.flatnonzero(large)]
        drawn = [
            Image.fromarray(decode_mask(each.mask)).resize((size, size), Image.Resampling.NEAREST)
            for each in kept
        ]
        return {
            "boxes": torch.tensor(boxes[large], dtype=torch.get_default_dtype()),
            "labels": torch.tensor([each.label for each in kept], dtype=torch.int64),
            "masks": torch.from_numpy(np.array(drawn, np.bool_).reshape(-1, size, size)),
            "iscrowd": torch.tensor([each.is_crowd for each in kept], dtype=torch.int64),
        }


@dataclass(frozen=True, kw_only=True)
class AnnotatedImages:
    """Images that are read when they are taken; the label of each is its number."""

    annotated: tuple[AnnotatedImage, ...]
    entries: tuple[Entry, ...]
    """Of the images, in the same order."""
    folder: Path
    image_format: ImageFormat

    def __len__(self) -> int:
        return len(self.annotated)

    def take(self, numbers: Tensor) -> Samples:
        """Return the images of these numbers, in that order, scaled to squares."""
        entries = [self.entries[number] for number in numbers.tolist()]
        images, unreadable = read_images(entries, self.folder, self.image_format)
        samples.check_bad_fraction(unreadable, len(entries), 0)
        squares = [pixels_of(stretched(each.value, self.image_format.size)) for each in images]
        return Samples(inputs=torch.from_numpy(np.stack(squares)), labels=numbers)

    def target(self, number: int) -> Target:
        """Return the objects on an image."""
        return self.annotated[number].target(self.image_format.size)


def parse(content: bytes, *, name: str) -> tuple[tuple[str, ...], list[AnnotatedImage]]:
    """Parse an annotation file; `name` is its name in error messages.

    Returns:
        The names of the categories, in the order of their ids, and the images.

    Raises:
        DataRejected: the file is malformed; the message says where.
    """
    where = "the file"
    try:
        value = json.loads(content)
        categories = {int(entry["id"]): str(entry["name"]) for entry in value["categories"]}
        labels = {category: label for label, category in enumerate(sorted(categories), start=1)}
        images: dict[int, AnnotatedImage] = {}
        for entry in value["images"]:
            where = f"image {entry.get('id')}"
            size = {side: int(entry[side]) for side in ("width", "height")}
            image = AnnotatedImage(path=str(entry["file_name"]), **size, instances=[])
            images[int(entry["id"])] = image
        for entry in value["annotations"]:
            where = f"annotation {entry.get('id')}"
            image = images[int(entry["image_id"])]
            image.instances.append(_instance(entry, labels, image))
        where = "the file"
        if len({image.path for image in images.values()}) != len(value["images"]):
            raise ValueError("images share an id or a file_name")  # noqa: TRY301  # one exit
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataRejected(
            f"{name}: {where}: {type(error).__name__}: {error}: not a file of COCO's format"
        ) from error
    return tuple(categories[category] for category in labels), list(images.values())


def _instance(
    entry: Mapping[str, Any], labels: Mapping[int, int], image: AnnotatedImage
) -> Instance:
    left, top, across, down = (float(value) for value in entry["bbox"])
    if not (across >= 0 and down >= 0):
        raise ValueError(f"a box {across} wide and {down} high")
    right, bottom = left + across, top + down
    corners = [left, top, right, top, right, bottom, left, bottom]
    mask = entry.get("segmentation") or [corners]
    return Instance(
        label=labels[int(entry["category_id"])],
        box=(left, top, right, bottom),
        is_crowd=bool(entry.get("iscrowd", 0)),
        mask=_run_lengths(mask, width=image.width, height=image.height),
    )


def encode_masks(masks: np.ndarray) -> list[RunLengths]:
    """Encode masks of 0 and 1, shape (N, height, width), as run lengths."""
    if not len(masks):
        return []
    encoded = library(_MASKS).encode(np.asfortranarray(masks.astype(np.uint8).transpose(1, 2, 0)))
    return [{**one, "counts": one["counts"].decode()} for one in encoded]


def decode_mask(run_lengths: RunLengths) -> np.ndarray:
    """Decode run lengths to bytes of 0 and 1, shape (height, width)."""
    return library(_MASKS).decode(dict(run_lengths))


def _run_lengths(
    segmentation: Mapping[str, Any] | Sequence[Sequence[float]], *, width: int, height: int
) -> RunLengths:
    """Encode the segmentation of an annotation: polygons `[x1, y1, x2, y2, …]`, or any run lengths.

    Raises:
        ValueError: the segmentation is malformed, or its size is not that of the image.
    """
    mask = library(_MASKS)
    try:
        if isinstance(segmentation, Mapping):
            run_lengths: Any = dict(segmentation)
            if not isinstance(run_lengths["counts"], str):
                run_lengths["counts"] = [int(count) for count in run_lengths["counts"]]
                run_lengths = mask.frPyObjects(run_lengths, height, width)
            if mask.decode(run_lengths).shape != (height, width):
                raise ValueError(f"a mask that is not {height} high and {width} wide")
            return run_lengths
        polygons = [[float(place) for place in polygon] for polygon in segmentation]
        if any(len(polygon) < 6 or len(polygon) % 2 for polygon in polygons):  # noqa: PLR2004  # three corners
            raise ValueError("a polygon is x and y of three corners or more")
        return mask.merge(mask.frPyObjects(polygons, height, width))
    except RuntimeError as error:
        raise ValueError(str(error)) from error
