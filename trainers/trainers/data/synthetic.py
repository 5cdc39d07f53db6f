"""Generated images, to measure the hardware without waits for data.

The dataset repeats a pool of random images, so that memory does not grow with the number of
samples. Each class has at least one image of the pool, so that it can be learned.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.data.dataset import Dataset, DatasetRequest
from trainers.data.image_file import ImageFormat
from trainers.data.images import Samples
from trainers.data.samples import HELD_OUT_ONE_IN, check_fit_to_learn

# Large enough that a usual batch has few copies of an image; 38 MB of RGB at 224 pixels.
_LEAST_POOL = 256
_SEED = 20_151_210  # for the images, not for the training


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """A dataset of `samples` images that repeats the pool."""

    pool: Samples
    samples: int

    def __len__(self) -> int:
        return self.samples

    def take(self, numbers: Tensor) -> Samples:
        """Return the images of these numbers."""
        return self.pool.take(numbers % len(self.pool))


def make(request: DatasetRequest) -> Dataset:
    """Make the request's number of images and classes, and a fifth as many held-out images.

    Raises:
        DataRejected: fewer than two classes.
    """
    samples, classes = request.synthetic_images, request.synthetic_classes

    def repeated(samples: int, image_format: ImageFormat) -> Repeated:
        labels = torch.arange(classes * -(-_LEAST_POOL // classes)) % classes
        shape = (len(labels), image_format.channels, image_format.size, image_format.size)
        generator = torch.Generator().manual_seed(_SEED)
        pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
        return Repeated(pool=Samples(inputs=pixels, labels=labels), samples=samples)

    version = f"synthetic-{samples}-{classes}"
    names = tuple(f"{number:04d}" for number in range(classes))
    held_out = max(1, samples // HELD_OUT_ONE_IN)
    check_fit_to_learn(version, names, samples, held_out)
    held_out_as = functools.partial(repeated, held_out)
    return Dataset(
        version=version,
        classes=names,
        train=repeated(samples, request.image_format),
        held_out=held_out_as(request.image_format),
        held_out_as=held_out_as,
        fingerprint=f"{_SEED}",
    )
