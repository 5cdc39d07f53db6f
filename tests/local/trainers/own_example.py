"""A user's own model and dataset, as docs/trainers.md shows them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor, nn

from trainers.data.dataset import Dataset, DatasetRequest
from trainers.data.image_file import ImageFormat
from trainers.data.images import Samples
from trainers.detection.network import build
from trainers.small_resnet import SmallResNet
from trainers.vision import library


class Perceptron(nn.Module):
    """A network with dropout, which a seed for each step makes repeatable."""

    def __init__(self, *, channels: int, classes: int) -> None:
        super().__init__()
        self.hidden = nn.Sequential(nn.Flatten(), nn.LazyLinear(32), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(32, classes)
        self.hidden(torch.zeros(1, channels, 8, 8))

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.hidden(images))


class BatchNormalised(nn.Module):
    """Small, with running statistics in two layers."""

    def __init__(self, *, channels: int, classes: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(channels, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.second(self.first(images)).mean(dim=(2, 3)))


def narrow_resnet(*, channels: int, classes: int) -> SmallResNet:
    """Two equal blocks: torch plans the operations on shards once for each shape of a parameter."""
    return SmallResNet(2, channels=channels, classes=classes, widths=(8,))


def stripes(request: DatasetRequest) -> Dataset:
    """Images whose brightest row is their class."""
    image_format = request.image_format

    def images(count: int, image_format: ImageFormat) -> Samples:
        labels = torch.arange(count) % image_format.size
        pixels = torch.zeros(
            (count, image_format.channels, image_format.size, image_format.size), dtype=torch.uint8
        )
        pixels[torch.arange(count), :, labels] = 200
        return Samples(inputs=pixels, labels=labels)

    return Dataset(
        version="stripes-1",
        classes=tuple(f"row {row}" for row in range(image_format.size)),
        train=images(128, image_format),
        held_out=images(32, image_format),
        held_out_as=lambda other: images(32, other),
        fingerprint="stripes-1",
    )


def mixup(num_classes: int) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Each image and label mixed with another one's, as torchvision.transforms.v2.MixUp does."""

    def mix(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        part, other = torch.rand(()), torch.randperm(len(images))
        probabilities = nn.functional.one_hot(labels, num_classes).to(images.dtype)
        return (
            part * images + (1 - part) * images[other],
            part * probabilities + (1 - part) * probabilities[other],
        )

    return mix


def small_mask_rcnn(*, channels: int, classes: int) -> nn.Module:
    """A Mask R-CNN with narrow heads that looks at few proposals: for few cores."""
    models = library("torchvision.models.detection")
    return build(
        "mask-rcnn-resnet18",
        channels=channels,
        classes=classes,
        num_classes=None,  # it is in the predictors
        box_head=models.faster_rcnn.TwoMLPHead(256 * 7 * 7, 64),
        box_predictor=models.faster_rcnn.FastRCNNPredictor(64, classes + 1),
        mask_head=models.mask_rcnn.MaskRCNNHeads(256, (32,), 1),
        mask_predictor=models.mask_rcnn.MaskRCNNPredictor(32, 32, classes + 1),
        box_batch_size_per_image=16,
        rpn_pre_nms_top_n_train=128,
        rpn_post_nms_top_n_train=32,
        rpn_pre_nms_top_n_test=128,
        rpn_post_nms_top_n_test=32,
    )


def not_a_module(*, channels: int, classes: int) -> int:
    return channels * classes


def colourless(request: DatasetRequest) -> Dataset:
    """A dataset that ignores the requested colours: its images are grey."""
    image_format = ImageFormat(size=request.image_format.size, mode="grey")
    return stripes(dataclasses.replace(request, image_format=image_format))


def unlabelled(request: DatasetRequest) -> Dataset:
    """A dataset with -1 for a missing label, as in many files of labels."""
    dataset = stripes(request)
    images = dataset.train.take(torch.arange(len(dataset.train)))
    labels = torch.full_like(images.labels, -1)
    return dataclasses.replace(dataset, train=Samples(inputs=images.inputs, labels=labels))
