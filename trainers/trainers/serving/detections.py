"""Detections as JSON values, in pixels of the image that was sent.

The network sees every image scaled to a square: width and height by factors of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from trainers.detection import masks
from trainers.detection.scores import MASK_FROM

SCORE_THRESHOLD = 0.5
"""Detections with a lower score are left out by default."""

Detection = dict[str, Any]
"""`{"label", "score", "box": [left, top, right, bottom]}` and, if the network draws masks, `"mask":
{"size": [height, width], "counts"}` as COCO has it, see `trainers.detection.masks`."""


def describe(
    detected: Mapping[str, Tensor],
    classes: Sequence[str],
    *,
    square: int,
    width: int,
    height: int,
    score_threshold: float,
) -> list[Detection]:
    """The detections on one image with a sufficient score, the highest first.

    Args:
        detected: on the CPU as torchvision has them: boxes (O, 4), labels (O,) from 1, scores (O,),
            and masks (O, 1, square, square) if the network draws them.
        classes: the names of the labels.
        square: the side of the image that the network saw.
        width: of the image as it was sent.
        height: the same.
        score_threshold: the least score that counts.
    """
    labels, scores = detected["labels"].tolist(), detected["scores"].tolist()
    boxes = rescaled(detected["boxes"].numpy(), square=square, width=width, height=height).tolist()
    described: list[Detection] = []
    for position in detected["scores"].argsort(descending=True, stable=True).tolist():
        if scores[position] < score_threshold:
            break
        detection = {
            "label": classes[labels[position] - 1],
            "score": scores[position],
            "box": boxes[position],
        }
        if "masks" in detected:
            probabilities = detected["masks"][position, 0].float().numpy()
            detection["mask"] = rescaled_mask(probabilities, width=width, height=height)
        described.append(detection)
    return described


def rescaled(boxes: np.ndarray, *, square: int, width: int, height: int) -> np.ndarray:
    """Boxes (O, 4) on the square as boxes on the image that was scaled to it, none beyond it."""
    on_image = boxes.astype(np.float64) * ((width / square, height / square) * 2)
    return np.clip(on_image, 0, (width, height) * 2)


def rescaled_mask(probabilities: np.ndarray, *, width: int, height: int) -> dict[str, Any]:
    """A mask on the square as COCO's run lengths on the image that was scaled to it.

    Probabilities are interpolated first and cut off after that, so that edges stay smooth.

    Args:
        probabilities: that a pixel belongs, float32, shape (square, square).
        width: of the image.
        height: the same.
    """
    scaled = Image.fromarray(probabilities).resize((width, height), Image.Resampling.BILINEAR)
    return masks.encode(np.asarray(scaled)[None] >= MASK_FROM)[0]
