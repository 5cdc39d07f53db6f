from __future__ import annotations

import pytest

from trainers.data.image_file import ImageFormat, ImageMode
from trainers.data.images import images_at_once


@pytest.mark.parametrize(
    ("size", "mode", "images"),
    [(8, "grey", 512), (32, "rgb", 512), (224, "rgb", 111), (1_024, "rgb", 5), (8_192, "rgb", 1)],
)
def test_large_images_are_scored_in_smaller_passes(size: int, mode: ImageMode, images: int) -> None:
    assert images_at_once(ImageFormat(size=size, mode=mode), at_most=512) == images
