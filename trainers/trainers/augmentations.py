"""Augmentations of a batch for `--augment`, with the strengths of published recipes."""

from __future__ import annotations

from trainers.plugins import Augmentation
from trainers.vision import library


def mixup_or_cutmix(num_classes: int) -> Augmentation:
    """Return MixUp of strength 0.2 or CutMix of 1.0, drawn for each batch.

    Source: arXiv 1710.09412, arXiv 1905.04899; torchvision's references/classification.
    """
    transforms = library("torchvision.transforms.v2")
    mixes = (transforms.MixUp, 0.2), (transforms.CutMix, 1.0)
    return transforms.RandomChoice([mix(alpha=a, num_classes=num_classes) for mix, a in mixes])
