"""Images with the objects on them, in memory."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from trainers.data.images import Samples
from trainers.detection import masks
from trainers.detection.coco import AnnotatedImage

_LEAST_PIXELS = 1.0  # of a box on the scaled image: torchvision refuses boxes without an area


@dataclass(frozen=True, kw_only=True)
class Target:
    """The objects on one image, in pixels of the scaled image. Classes count from 1."""

    boxes: Tensor
    """Left, top, right, bottom, shape (O, 4)."""
    labels: Tensor
    """Shape (O,); 0 is the background."""
    masks: Tensor
    """Bytes of 0 and 1, shape (O, size, size)."""
    is_crowd: Tensor
    """Shape (O,)."""

    def to_learn(self, device: torch.device) -> dict[str, Tensor]:
        """For torchvision, without crowds."""
        tensors = dataclasses.asdict(self)
        keep = ~tensors.pop("is_crowd")
        return {name: tensor[keep].to(device) for name, tensor in tensors.items()}


@dataclass(frozen=True, kw_only=True)
class AnnotatedImages(Samples):
    """Images whose labels are numbers of annotated images."""

    annotated: tuple[AnnotatedImage, ...]
    size: int

    def target(self, number: int) -> Target:
        """The objects on an image. Masks are drawn on each call."""
        image = self.annotated[number]
        scale = (self.size / image.width, self.size / image.height) * 2
        boxes = np.array([kept.box for kept in image.instances]).reshape(-1, 4) * scale
        boxes = np.clip(boxes, 0, self.size)
        large = ((boxes[:, 2:] - boxes[:, :2]) >= _LEAST_PIXELS).all(axis=1)
        kept = [image.instances[position] for position in np.flatnonzero(large)]
        drawn = [_scaled(masks.decode(instance.mask), self.size) for instance in kept]
        return Target(
            boxes=torch.tensor(boxes[large], dtype=torch.get_default_dtype()),
            labels=torch.tensor([instance.category + 1 for instance in kept], dtype=torch.int64),
            masks=torch.from_numpy(np.array(drawn, np.uint8).reshape(-1, self.size, self.size)),
            is_crowd=torch.tensor([instance.is_crowd for instance in kept], dtype=torch.bool),
        )


def _scaled(mask: np.ndarray, size: int) -> np.ndarray:
    scaled = Image.fromarray(mask).resize((size, size), Image.Resampling.NEAREST)
    return np.asarray(scaled, dtype=np.uint8)
