from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.unit.trainers.small_datasets import image_file
from trainers.data.image_file import ImageFormat, check, decode, pixels_of, square

GREY_4 = ImageFormat(size=4, mode="grey")


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
@pytest.mark.parametrize(("model_mode", "channels"), [("grey", 1), ("rgb", 3)])
def test_any_size_and_mode_is_converted(
    mode: str, kind: str, model_mode: str, channels: int
) -> None:
    content = image_file(1, size=7, mode=mode, kind=kind)
    pixels = pixels_of(square(decode(content, ImageFormat(size=5, mode=model_mode)), 5))
    assert pixels.shape == (channels, 5, 5)
    assert pixels.dtype == np.uint8


def test_a_large_image_keeps_its_shape_and_twice_the_models_detail() -> None:
    stream = io.BytesIO()
    wide = Image.new("L", (90, 30))
    wide.paste(200, (24, 0, 66, 30))
    wide.save(stream, "PNG")
    decoded = decode(stream.getvalue(), GREY_4)
    assert decoded.size == (24, 8)
    assert (pixels_of(square(decoded, 4)) == 200).all()


WHOLE = image_file(1, size=64)


@pytest.mark.parametrize("read", [partial(decode, image_format=GREY_4), check])
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"GIF89a nothing", "not an image"),
        (WHOLE[:-900], "damaged"),
        (WHOLE[:200] + b"x" * 50 + WHOLE[250:], "damaged"),
        (WHOLE[:8] + WHOLE[-12:], "not an image"),
        (image_file(1)[:30], "image"),
    ],
)
def test_what_is_no_image_has_a_reason(
    content: bytes, reason: str, read: Callable[[bytes], object]
) -> None:
    with pytest.raises(ValueError, match=reason):
        read(content)


def test_deep_pixels_are_refused_not_clipped() -> None:
    stream = io.BytesIO()
    Image.fromarray(np.full((4, 4), 1000, dtype=np.uint16)).save(stream, "PNG")
    with pytest.raises(ValueError, match="more than 8 bits"):
        decode(stream.getvalue(), GREY_4)


@given(st.binary(max_size=200), st.integers(0, 60))
def test_damaged_files_are_refused_or_read_never_worse(noise: bytes, place: int) -> None:
    good = image_file(3)
    content = good[:place] + noise + good[place + len(noise) :]
    with contextlib.suppress(ValueError):
        assert square(decode(content, GREY_4), 4).size == (4, 4)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP"])
def test_whole_images_of_all_kinds_pass_cut_ones_do_not(kind: str) -> None:
    content = image_file(2, size=64, mode="RGB", kind=kind)
    check(content)
    check(content + b"more at the end")
    with pytest.raises(ValueError, match="image"):
        check(content[: len(content) // 2])
