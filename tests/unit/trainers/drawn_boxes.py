"""Images with boxes of two colours, and a detector of one's own that needs no torchvision."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from tests.unit.trainers.small_datasets import lay_down, write_manifest
from trainers.data.dataset import Dataset, DatasetRequest
from trainers.data.image_file import ImageFormat
from trainers.serving.model_folder import new_model, save_model
from trainers.tasks.coco_dataset import load

COLOURS = ("red", "green")
WIDTH, HEIGHT = 32, 16
ARCHITECTURE = "tests.unit.trainers.drawn_boxes:colour_finder"

Box = tuple[int, int, int, int]


class ColourFinder(nn.Module):
    """Finds the pixels that are bright in the n-th channel as one object of the n-th class.

    Bright is more than half, and its score is how much, from 0 to 1. Its loss is the sum of the
    labels that it shall learn.
    """

    computes_own_loss = True

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes

    def forward(self, images: Tensor, targets: list[dict[str, Tensor]] | None = None) -> Any:
        if targets is not None:
            labels = torch.stack([target["labels"].sum() for target in targets])
            return {"labels": labels.to(images.dtype).mean()}
        return [self._found(image) for image in images]

    def _found(self, image: Tensor) -> dict[str, Tensor]:
        bright = image[: self.classes] > 0
        there = [channel for channel in range(len(bright)) if bright[channel].any()]
        boxes: list[list[int]] = []
        for channel in there:
            rows, columns = bright[channel].nonzero().unbind(dim=1)
            corner = [int(columns.min()), int(rows.min())]
            boxes.append([*corner, int(columns.max()) + 1, int(rows.max()) + 1])
        return {
            "boxes": torch.tensor(boxes, dtype=image.dtype).reshape(-1, 4),
            "labels": torch.tensor(there, dtype=torch.int64) + 1,
            "scores": image.amax(dim=(1, 2))[there],
            "masks": bright[there, None].to(image.dtype),
        }


def colour_finder(*, channels: int, classes: int) -> nn.Module:
    assert channels == 3
    return ColourFinder(classes)


def save_finder(folder: Path, *classes: str, size: int = WIDTH) -> Path:
    save_model(folder, new_model(ARCHITECTURE, classes, ImageFormat(size=size, mode="rgb")), {})
    return folder


def image_with(boxes: dict[str, Box], *, brightness: int = 255) -> bytes:
    """A file, the same with any Pillow."""
    pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    for colour, (left, top, right, bottom) in boxes.items():
        pixels[top:bottom, left:right, COLOURS.index(colour)] = brightness
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "BMP")
    return stream.getvalue()


def load_dataset(folder: Path, *, size: int) -> Dataset:
    """The dataset that `write_dataset` writes, as images of `size` pixels."""
    write_dataset(folder)
    return load(
        DatasetRequest(
            image_format=ImageFormat(size=size, mode="rgb"),
            data=folder / "data",
            manifest=folder / "manifest.jsonl",
            annotations="boxes.json",
        )
    )


def write_dataset(folder: Path, *, images: int = 20) -> list[str]:
    """A COCO dataset below `folder`; the arguments that name it."""
    draw_from = np.random.default_rng(3)
    files: dict[str, bytes] = {}
    annotations: list[dict[str, Any]] = []
    for number in range(images):
        boxes: dict[str, Box] = {}
        for category, colour in enumerate(COLOURS):
            left, top = int(draw_from.integers(0, 20)), int(draw_from.integers(0, 8))
            width, height = int(draw_from.integers(4, 12)), int(draw_from.integers(4, 8))
            boxes[colour] = (left, top, left + width, top + height)
            between = [height, HEIGHT - height] * (width - 1)
            runs = [left * HEIGHT + top, *between, height]
            annotations.append(
                {
                    "id": len(annotations),
                    "image_id": number,
                    "category_id": category,
                    "bbox": [left, top, width, height],
                    "segmentation": {
                        "size": [HEIGHT, WIDTH],
                        "counts": [*runs, WIDTH * HEIGHT - sum(runs)],
                    },
                }
            )
        files[f"{number:02d}.bmp"] = image_with(boxes)
    listed = [
        {"id": number, "file_name": name, "width": WIDTH, "height": HEIGHT}
        for number, name in enumerate(files)
    ]
    categories = [{"id": category, "name": name} for category, name in enumerate(COLOURS)]
    document = {"images": listed, "annotations": annotations, "categories": categories}
    files["boxes.json"] = json.dumps(document).encode()
    manifest = write_manifest(folder / "manifest.jsonl", lay_down(folder / "data", files))
    return [
        *("--dataset", "coco", "--annotations", "boxes.json"),
        *("--data", str(folder / "data"), "--manifest", str(manifest)),
    ]
