"""Files of the stories: real handwritten digits as PNG files, and invalid images."""

from __future__ import annotations

import io
import random
import runpy
from pathlib import Path

import numpy as np
from PIL import Image

MAKE_DATASET = Path(__file__).parent.parent / "pipelines" / "digits" / "make_dataset.py"

File = tuple[str, bytes]
"""(`<label>/<name>.png`, content)."""


def digit_files(folder: Path) -> list[File]:
    """All 1,797 digits of the example pipeline, in a shuffled, fixed order.

    The data set is ordered by writer, so that a first batch in its own order would have too few
    writers. The files are created in the folder.
    """
    runpy.run_path(str(MAKE_DATASET))["make_dataset"](folder, limit=None)
    files = [
        (file.relative_to(folder).as_posix(), file.read_bytes())
        for file in sorted(folder.glob("*/*.png"))
    ]
    random.Random(0).shuffle(files)  # noqa: S311 - no secret
    return files


def shifted(files: list[File]) -> list[File]:
    """The same scans, moved by one pixel, under new names."""
    moved: list[File] = []
    for path, content in files:
        pixels = np.roll(np.asarray(Image.open(io.BytesIO(content))), 1, axis=1)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG")
        moved.append((path.replace(".png", "-shifted.png"), buffer.getvalue()))
    return moved


def no_images(count: int) -> list[File]:
    """Files with a PNG name that are not PNG images."""
    return [
        (f"{number % 10}/broken-{number:03d}.png", f"no image at all, number {number}".encode())
        for number in range(count)
    ]
