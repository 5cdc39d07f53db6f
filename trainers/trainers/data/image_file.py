"""Decode image files to pixels; refuse unreadable ones with the reason."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Generator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

# The formats that cameras and annotation tools write. Pillow reads many more.
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP")
# Pillow's mode, and its number of channels.
_PILLOW_MODES = {"grey": ("L", 1), "rgb": ("RGB", 3)}
# Pillow clips these when it converts them to 8 bits, instead of scaling them.
_DEEP_MODES = frozenset({"I", "F", "I;16", "I;16L", "I;16B", "I;16N"})
# An original's shorter side, in sizes of the model's images: more detail is for crops only.
_DETAIL = 2
_MAX_PIXELS = 89_478_485  # Pillow warns above this; 256 MiB of RGB
ImageMode = Literal["grey", "rgb"]


@dataclass(frozen=True, kw_only=True)
class ImageFormat:
    """The input images of a model: squares of `size` pixels, in grey or RGB."""

    size: int
    mode: str

    @property
    def channels(self) -> int:
        """1 for grey, 3 for RGB."""
        return _PILLOW_MODES[self.mode][1]


def decode(content: bytes, image_format: ImageFormat) -> Image.Image:
    """Decode an image file to an image of any shape, in the format's mode.

    The shorter side of a large image becomes twice the format's size.

    Raises:
        ValueError: it is not a readable image; the text is the reason.
    """
    with _opened(content) as image:
        converted = image.convert(_PILLOW_MODES[image_format.mode][0])
    scale = _DETAIL * image_format.size / min(converted.size)
    if scale < 1:
        reduced = round(converted.width * scale), round(converted.height * scale)
        converted = converted.resize(reduced, Image.Resampling.BILINEAR)
    return converted


def square(image: Image.Image, size: int) -> Image.Image:
    """Return the middle square of an image, scaled to `size`."""
    if image.size == (size, size):
        return image
    return ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR)


def stretched(image: Image.Image, size: int) -> Image.Image:
    """Return the whole image, scaled to a square, for a detector."""
    return image.resize((size, size), Image.Resampling.BILINEAR)


def pixels_of(image: Image.Image) -> np.ndarray:
    """Return an image's bytes, shape (C, H, W)."""
    pixels = np.array(image, np.uint8)
    return pixels[None] if image.mode == "L" else pixels.transpose(2, 0, 1)


def check(content: bytes) -> None:
    """Decode an image file to check that it is readable; discard the pixels.

    Raises:
        ValueError: it is not a readable image; the text is the reason.
    """
    with _opened(content) as image:
        image.load()


@contextlib.contextmanager
def _opened(content: bytes) -> Generator[Image.Image]:
    if not content:
        raise ValueError("empty")
    try:
        with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
            if image.mode in _DEEP_MODES:
                raise ValueError(f"more than 8 bits a channel (mode {image.mode})")
            if image.width * image.height > _MAX_PIXELS:  # Pillow only warns until twice this
                raise Image.DecompressionBombError  # noqa: TRY301  # as it does beyond
            yield image
    except UnidentifiedImageError:
        raise ValueError(f"not an image ({', '.join(_FORMATS)})") from None
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise ValueError("more pixels than a sane image has") from None
    except (OSError, SyntaxError, EOFError, IndexError, OverflowError) as error:
        raise ValueError(f"damaged image: {error}") from error  # from Pillow's decoders
