"""Real handwritten digits as small PNG files, and what else lands in the stories.

1,797 scans of 8 by 8 pixels by 43 people, from scikit-learn's copy of
https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits
"""

from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

MAX_GREY = 16  # the data set's own scale


def digit_files(seed: int = 0) -> list[tuple[str, bytes]]:
    """All digits as (`<label>/<number>.png`, PNG bytes), in a shuffled, fixed order.

    In the data set's own order the writers come one after another; a first batch of it would hold
    too few hands.
    """
    digits: Any = load_digits()  # a Bunch; the stubs only know its other form
    files = [
        (f"{label}/{number:04d}.png", _png(pixels))
        for number, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True))
    ]
    random.Random(seed).shuffle(files)  # noqa: S311 - no secret
    return files


def shifted(files: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """The same scans, moved by one pixel, under names of their own."""
    moved: list[tuple[str, bytes]] = []
    for path, content in files:
        pixels = np.asarray(Image.open(io.BytesIO(content)))
        moved.append((path.replace(".png", "-shifted.png"), _encode(np.roll(pixels, 1, axis=1))))
    return moved


def no_images(count: int) -> list[tuple[str, bytes]]:
    """Files that call themselves PNG and are none."""
    return [
        (f"{number % 10}/broken-{number:03d}.png", f"no image at all, number {number}".encode())
        for number in range(count)
    ]


def _png(pixels: np.ndarray) -> bytes:
    return _encode((pixels * (255 / MAX_GREY)).round().astype(np.uint8))


def _encode(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()
