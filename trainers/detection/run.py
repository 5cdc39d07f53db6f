"""Training of a detector: the loop of `trainers.loop` with the losses that the network computes."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from trainers.data.images import Images, to_input
from trainers.detection.dataset import AnnotatedImages
from trainers.detection.network import is_detector
from trainers.errors import LaunchInvalid
from trainers.loop import Run


class DetectionRun(Run):
    """A run on a `trainers.detection.dataset.DetectionDataset`.

    Raises:
        LaunchInvalid: the network is not a detector.
    """

    moves_images = False  # boxes would have to be shifted, too
    moves_labels = False  # labels are the numbers of annotated images

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if not is_detector(self.parallel.network):
            raise LaunchInvalid(
                f"--model {self.settings.model} is not a detector: --dataset coco needs one, as "
                "mask-rcnn-resnet50"
            )

    def _pass(self, images: Images, *, last: bool) -> Tensor:
        """One forward and backward pass.

        Losses are means over this rank's images and weigh by their number. Each rank draws the
        proposals of its images, so that the loss depends on the number of ranks, unlike a
        classifier's.
        """
        train, device = cast("AnnotatedImages", self.dataset.train), self.world.device
        weight = len(images) * self.parallel.coordinates.data_ranks / self.settings.batch_size
        return self.parallel.forward_backward(
            to_input(images.pixels, device),
            [train.target(number).to_learn(device) for number in images.labels.tolist()],
            lambda losses, _: weight * torch.stack(list(losses.values())).sum(),
            last=last,
        )
