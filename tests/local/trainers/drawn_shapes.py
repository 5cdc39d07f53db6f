"""A small COCO dataset: on each image a box and a disc."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

COLOURS = {"box": (230, 60, 40), "disc": (40, 90, 230)}


def draw_shapes(folder: Path, *, images: int, size: int) -> Path:
    """Draw images of `size` x `size` pixels and write their annotations; returns `folder`."""
    draw_from = np.random.default_rng(5)
    described: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number in range(images):
        noise = draw_from.integers(0, 40, (size, size, 3), dtype=np.uint8)
        image = Image.fromarray(noise)
        draw = ImageDraw.Draw(image)
        for place, name in enumerate(COLOURS):
            side = int(draw_from.integers(size // 4, size // 2 - size // 8 + 1))
            left = place * size // 2 + int(draw_from.integers(0, size // 2 - side))
            top = int(draw_from.integers(0, size - side))
            corners = (left, top, left + side, top + side)
            (draw.rectangle if name == "box" else draw.ellipse)(corners, fill=COLOURS[name])
            centre, radius = (left + side / 2, top + side / 2), side / 2
            angles = np.linspace(0, 2 * np.pi, 16, endpoint=False)
            disc = np.stack([np.cos(angles), np.sin(angles)], axis=1) * radius + centre
            right, bottom = left + side, top + side
            box = [left, top, right, top, right, bottom, left, bottom]
            annotations.append(
                {
                    "id": len(annotations),
                    "image_id": number,
                    "category_id": place + 1,
                    "bbox": [left, top, side, side],
                    "iscrowd": 0,
                    "segmentation": [box if name == "box" else disc.flatten().tolist()],
                }
            )
        path = f"images/{number:03d}.png"
        described.append({"id": number, "file_name": path, "width": size, "height": size})
        (folder / "images").mkdir(exist_ok=True)
        image.save(folder / path)
    categories = [{"id": place + 1, "name": name} for place, name in enumerate(COLOURS)]
    document = {"images": described, "annotations": annotations, "categories": categories}
    (folder / "annotations.json").write_text(json.dumps(document))
    return folder
