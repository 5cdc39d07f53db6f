"""Augmentations of a batch for `--augment`, with the strengths of published recipes.

Sources: arXiv 1710.09412 (MixUp), 1905.04899 (CutMix), 2103.10158 (TrivialAugment), 1909.13719
(RandAugment), 1708.04896 (erasing); their strengths: torchvision's references/classification.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trainers.data.images import to_input
from trainers.plugins import Augmentation
from trainers.vision import library


def mixup_or_cutmix(num_classes: int) -> Augmentation:
    """Return MixUp of strength 0.2 or CutMix of 1.0, drawn for each batch."""
    transforms = library("torchvision.transforms.v2")
    mixes = (transforms.MixUp, 0.2), (transforms.CutMix, 1.0)
    return transforms.RandomChoice([mix(alpha=a, num_classes=num_classes) for mix, a in mixes])


def trivial_augment_and_mix(num_classes: int) -> Augmentation:
    """Return TrivialAugment and, of one image in ten, erasing; then `mixup_or_cutmix`."""
    return _and_mix("TrivialAugmentWide", num_classes, erased=0.1)


def rand_augment_and_mix(num_classes: int) -> Augmentation:
    """Return RandAugment, then `mixup_or_cutmix`."""
    return _and_mix("RandAugment", num_classes, erased=0.0)


def _and_mix(policy: str, num_classes: int, *, erased: float) -> Augmentation:
    transforms, mix = library("torchvision.transforms.v2"), mixup_or_cutmix(num_classes)
    bilinear = transforms.InterpolationMode.BILINEAR
    change: Any = getattr(transforms, policy)(interpolation=bilinear)
    erase: Any = transforms.RandomErasing(p=erased)

    def augment(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        pixels = ((images + 1) * 127.5).round().byte()  # the policies are of bytes
        # One by one: of a batch, all images would get the same draws.
        changed = [erase(to_input(change(each), each.device)) for each in pixels]
        return mix(torch.stack(changed), labels)

    return augment
