"""Samples as tensors, addressed by number, and the images that they are made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from trainers.data.image_file import ImageFormat, pixels_of, square
from trainers.vision import library

_INPUT_BYTES = 64 * 2**20
_BYTES_OF_A_VALUE = 4
_RATIOS = (3 / 4, 4 / 3)  # of width to height: torchvision's


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Inputs and labels; a sample's number is its index in both.

    For images: bytes of shape (N, C, H, W), and class numbers, int64 of shape (N,).
    """

    inputs: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, numbers: Tensor) -> Samples:
        """Return the samples of these numbers, in that order."""
        return Samples(inputs=self.inputs[numbers], labels=self.labels[numbers])


class SampleSource(Protocol):
    """Samples with numbers from 0: in memory, like `Samples`, or generated or read on demand."""

    def __len__(self) -> int: ...

    def take(self, numbers: Tensor) -> Samples:
        """The samples of these numbers, in that order. A number always has the same sample."""
        ...


View = Callable[[Any, Sequence[float]], Tensor]
"""Makes a square, bytes of shape (C, size, size), of an image of Pillow or a tensor, by numbers
from 0 to 1."""


class Originals(ABC):
    """A source of images of any size and shape."""

    image_format: ImageFormat

    @abstractmethod
    def views(self, numbers: Tensor, view: View, draws: Tensor) -> Samples:
        """Return views of these images; `draws` has a row for each."""

    def take(self, numbers: Tensor) -> Samples:
        """Return the middle squares of these images."""

        def middle(image: Any, _: Sequence[float]) -> Tensor:
            return torch.from_numpy(pixels_of(square(image, self.image_format.size)))

        return self.views(numbers, middle, torch.empty(len(numbers), 0))


@dataclass(frozen=True, kw_only=True)
class RandomCrop:
    """A random resized crop of an image, or its mirror image, by transforms v2.

    Source: Szegedy et al., arXiv 1409.4842, section 6.
    """

    DRAWS = 5
    """The numbers that a crop takes."""

    size: int
    least_area: float
    """As a part of the image's area."""

    def __call__(self, image: Any, draws: Sequence[float]) -> Tensor:
        """Make the crop of these random numbers; see `View`."""
        transforms = library("torchvision.transforms.v2.functional")
        # Images of Pillow from all sources: torch's scaling rounds otherwise, and its threads would
        # wait for those of the training.
        whole = transforms.to_pil_image(image) if isinstance(image, Tensor) else image
        width, height = whole.size
        area, ratio, across, down, mirror = draws
        pixels = (self.least_area + area * (1 - self.least_area)) * width * height
        shape = _RATIOS[0] * (_RATIOS[1] / _RATIOS[0]) ** ratio  # its logarithm is uniform
        wide = max(1, min(width, round((pixels * shape) ** 0.5)))
        high = max(1, min(height, round((pixels / shape) ** 0.5)))
        top, left = int(down * (height - high + 1)), int(across * (width - wide + 1))
        crop = transforms.resized_crop(whole, top, left, high, wide, [self.size] * 2)
        if mirror < 1 / 2:
            crop = transforms.horizontal_flip(crop)
        return torch.from_numpy(pixels_of(crop))


def shifted(images: Tensor, offsets: Tensor) -> Tensor:
    """Move each image, shape (B, C, H, W), by its own offset, filling with 0.

    Offsets are whole pixels (down, right), shape (B, 2). In one go: with a call for each image, as
    transforms v2 need, the thread that makes batches would wait for Python's lock too often.
    """
    count, _, height, width = images.shape
    reach = int(offsets.abs().max()) if count else 0
    padded = functional.pad(images, (reach, reach, reach, reach))
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # by first row, first column
    first = reach - offsets
    return windows[torch.arange(count), :, first[:, 0], first[:, 1]]


def random_views(source: SampleSource, numbers: Tensor, view: View, draws: Tensor) -> Samples:
    """Return views of a source's images: of the originals, if it has them, else of its squares."""
    if isinstance(source, Originals):
        return source.views(numbers, view, draws)
    samples = source.take(numbers)
    views = [view(*each) for each in zip(samples.inputs, draws.tolist(), strict=True)]
    return Samples(inputs=torch.stack(views), labels=samples.labels)


def images_at_once(image_format: ImageFormat, *, at_most: int) -> int:
    """Return how many images to pass through a network without gradients at a time.

    Its memory is some tens of times that of its input, so the input is at most 64 MiB: 111 images
    in RGB of 224 pixels, 5 of 1,024.
    """
    values = image_format.channels * image_format.size**2
    return max(1, min(at_most, _INPUT_BYTES // (_BYTES_OF_A_VALUE * values)))


def to_input(pixels: Tensor, device: torch.device) -> Tensor:
    """Convert bytes to a network's input: numbers from -1 to 1, in the same shape."""
    # One call of `to` would convert on the CPU, and copy four bytes per value instead of one.
    return pixels.to(device).to(torch.get_default_dtype()) / 127.5 - 1
