from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from trainers.data.image_file import ImageFormat, ImageMode, pixels_of
from trainers.data.images import RandomCrop, images_at_once, shifted


@pytest.mark.parametrize(
    ("size", "mode", "images"),
    [(8, "grey", 512), (32, "rgb", 512), (224, "rgb", 111), (1_024, "rgb", 5), (8_192, "rgb", 1)],
)
def test_large_images_are_scored_in_smaller_passes(size: int, mode: ImageMode, images: int) -> None:
    assert images_at_once(ImageFormat(size=size, mode=mode), at_most=512) == images


DRAW = st.floats(0, 1, exclude_max=True)
DRAWS = st.tuples(DRAW, DRAW, DRAW, DRAW, DRAW)


@given(down=st.integers(-2, 2), right=st.integers(-2, 2), channels=st.sampled_from([1, 3]))
def test_a_shifted_image_is_the_image_elsewhere(down: int, right: int, channels: int) -> None:
    images = torch.arange(1, 1 + 2 * channels * 20).reshape(2, channels, 4, 5)
    moved = shifted(images, torch.tensor([[down, right], [0, 0]]))
    for y in range(4):
        for x in range(5):
            inside = 0 <= y - down < 4 and 0 <= x - right < 5
            expected = images[0, :, y - down, x - right] if inside else torch.zeros(channels)
            assert moved[0, :, y, x].tolist() == expected.tolist()
    assert torch.equal(moved[1], images[1])
    assert moved.stride() == images.stride()


@given(width=st.integers(1, 40), height=st.integers(1, 40), draws=DRAWS)
def test_a_crop_of_any_image_is_a_square_of_its_pixels(
    width: int, height: int, draws: tuple[float, ...]
) -> None:
    image = Image.new("RGB", (width, height), (7, 100, 255))
    view = RandomCrop(size=6, least_area=0.08)(image, draws)
    assert view.shape == (3, 6, 6)
    assert view.flatten(1).unique(dim=1).tolist() == [[7], [100], [255]]


def test_a_crop_of_all_is_the_image_or_its_mirror_image() -> None:
    image = Image.fromarray(torch.arange(16, dtype=torch.uint8).reshape(4, 4).numpy())
    view = RandomCrop(size=4, least_area=1.0)
    whole = torch.from_numpy(pixels_of(image))
    assert torch.equal(view(image, (0.5, 0.5, 0.9, 0.9, 0.9)), whole)
    assert torch.equal(view(image, (0.5, 0.5, 0.9, 0.9, 0.1)), whole.flip(2))
