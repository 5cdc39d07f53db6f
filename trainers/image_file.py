"""An image file's bytes to pixels, or the reason why not."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image, UnidentifiedImageError

# The formats that a camera or an annotation tool writes; Pillow knows many odd ones.
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP")
# Pillow's mode and its channels.
_PILLOW_MODES = {"grey": ("L", 1), "rgb": ("RGB", 3)}
# Conversion to 8 bits would clip these, not scale them.
_DEEP_MODES = frozenset({"I", "F", "I;16", "I;16L", "I;16B", "I;16N"})
_MAX_PIXELS = 89_478_485  # what Pillow warns from, a quarter of a gibibyte of RGB

MODES = tuple(_PILLOW_MODES)


@dataclass(frozen=True, kw_only=True)
class ImageFormat:
    """What a model takes: square images of `size` pixels, in grey or RGB."""

    size: int
    mode: str

    @property
    def channels(self) -> int:
        """1 for grey, 3 for RGB."""
        return _PILLOW_MODES[self.mode][1]


def decode(content: bytes, image_format: ImageFormat) -> np.ndarray:
    """Decode an image file to unsigned bytes of shape (C, H, W), resized if need be.

    Raises:
        ValueError: it is no image that can be read; the text is the reason.
    """
    size = (image_format.size, image_format.size)

    def convert(image: Image.Image) -> Image.Image:
        converted = image.convert(_PILLOW_MODES[image_format.mode][0])
        if converted.size == size:
            return converted
        return converted.resize(size, Image.Resampling.BILINEAR)

    pixels = np.asarray(_opened(content, convert), dtype=np.uint8)
    return pixels.reshape(*size, image_format.channels).transpose(2, 0, 1)


def check(content: bytes, *, only_header: bool = False) -> str | None:
    """Why `content` is no image that can be learned from, or None if it is one.

    Args:
        content: of a file.
        only_header: look at what kind, mode and size it is; damage further in is not seen.
    """
    try:
        _opened(content, (lambda image: image) if only_header else _loaded)
    except ValueError as error:
        return str(error)
    return None


def _loaded(image: Image.Image) -> Image.Image:
    image.load()
    return image


def _opened(content: bytes, use: Callable[[Image.Image], Image.Image]) -> Image.Image:
    if not content:
        raise ValueError("empty")
    try:
        with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
            if image.mode in _DEEP_MODES:
                raise ValueError(f"more than 8 bits a channel (mode {image.mode})")
            if image.width * image.height > _MAX_PIXELS:  # Pillow only warns, up to twice as many
                raise Image.DecompressionBombError  # noqa: TRY301  # as it does beyond
            return use(image)
    except UnidentifiedImageError:
        raise ValueError(f"not an image ({', '.join(_FORMATS)})") from None
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise ValueError("more pixels than a sane image has") from None
    except (OSError, SyntaxError, EOFError, IndexError, OverflowError) as error:
        raise ValueError(f"damaged image: {error}") from error  # what Pillow's decoders raise
