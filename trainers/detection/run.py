"""Training of a detector: the same loop, another loss, another score."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from trainers.data.images import Images, to_input
from trainers.data.order import stream_seed
from trainers.detection.dataset import AnnotatedImages, DetectionDataset, Target
from trainers.detection.scores import DetectionEvaluation, Scores
from trainers.errors import LaunchInvalid, ModelUnreadable
from trainers.evaluate import passes
from trainers.loop import Run
from trainers.serving.model_folder import load_model

_AT_ONCE = 8  # images that a rank scores: their masks have their size each


class DetectionRun(Run):
    """A run on a `DetectionDataset`.

    Raises:
        LaunchInvalid: the network is no detector.
    """

    moves_images = False  # boxes would have to move along

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if not getattr(self.parallel.network, "computes_own_loss", False):
            raise LaunchInvalid(
                f"--model {self.settings.model} is no detector: --dataset coco needs one, as "
                "mask-rcnn-resnet50"
            )

    @property
    def annotated(self) -> DetectionDataset:
        """The dataset, which is one of annotated images."""
        return cast("DetectionDataset", self.dataset)

    def _pass(self, images: Images, *, last: bool) -> Tensor:
        """One forward and backward pass.

        Losses are means over this rank's images, so they weigh by how many these are. Which
        proposals they are of is drawn on each rank: unlike a classifier's, the loss depends on the
        number of ranks.
        """
        weight = len(images) * self.parallel.place.data_ranks / self.settings.batch_size
        return self.parallel.forward_backward(
            to_input(images.pixels, self.world.device),
            self._targets(self.annotated.train, images),
            lambda losses, _: weight * torch.stack(list(losses.values())).sum(),
            last=last,
        )

    def evaluate(self) -> DetectionEvaluation:
        """Mean average precision and loss on what is held out.

        Raises:
            TrainingDiverged: the loss is not finite.
        """
        self.parallel.unify_buffers()
        images = self.annotated.held_out
        evaluation = self._score(self.parallel.evaluated, images, self.dataset.classes)
        self.parallel.module.train()
        self._note(evaluation.loss, evaluation.headline)
        return evaluation

    def score_champion(self, folder: Path) -> dict[str, float]:
        """The champion on the same images, read at its own size.

        Raises:
            ModelUnreadable: there is no detector in the folder.
        """
        settings, world = self.settings, self.world
        champion = world.together(
            "champion", lambda: load_model(folder, world.device, settings.model)
        )
        if not getattr(champion.network, "computes_own_loss", False):
            raise ModelUnreadable(f"the model in {folder} is {champion.architecture}, no detector")
        images = self.dataset.held_out_as(champion.image_format)
        evaluation = self._score(
            champion.network, cast("AnnotatedImages", images), champion.classes
        )
        return {"champion_average_precision": evaluation.headline}

    def _score(
        self, network: nn.Module, images: AnnotatedImages, its_classes: tuple[str, ...]
    ) -> DetectionEvaluation:
        place, device = self.parallel.place, self.world.device
        ours = {name: number for number, name in enumerate(self.dataset.classes, start=1)}
        # 0 for a class that the data does not have: its detections count neither way.
        to_ours = torch.tensor([0, *(ours.get(name, 0) for name in its_classes)])
        scores = Scores(classes=len(self.dataset.classes))
        loss = torch.zeros(1, dtype=torch.float64)
        comparable = its_classes == self.dataset.classes
        torch.manual_seed(stream_seed(self.settings.seed, self.step, place.random_stream))
        with torch.no_grad():
            for numbers in passes(len(images), place, at_once=_AT_ONCE):
                # Every rank does as many passes: the network may be in shards.
                batch = images.take(numbers if len(numbers) else torch.tensor([0]))
                pixels = to_input(batch.pixels, device)
                network.eval()
                detections: list[dict[str, Tensor]] = network(pixels)
                if comparable:
                    network.train()
                    losses = network(pixels, self._targets(images, batch))
                    loss += sum(float(value) for value in losses.values()) * len(numbers)
                self.beat(f"a pass of evaluation after step {self.step}")
                for number, detected in zip(numbers.tolist(), detections, strict=False):
                    target = images.target(number)
                    scores.add(
                        {name: to_cpu.cpu() for name, to_cpu in detected.items()}, target, to_ours
                    )
        if not place.is_counted:
            scores, loss = Scores(classes=len(self.dataset.classes)), loss * 0
        everywhere = Scores.together(self.world.gather(scores))
        mean_loss = self.world.sum(loss.to(device)).item() / len(images)
        return everywhere.evaluation(self.dataset.classes, loss=mean_loss)

    def _targets(self, images: AnnotatedImages, batch: Images) -> list[dict[str, Tensor]]:
        """As torchvision takes them; a crowd is no object to learn."""
        return [
            _learned(images.target(number), self.world.device) for number in batch.labels.tolist()
        ]


def _learned(target: Target, device: torch.device) -> dict[str, Tensor]:
    tensors = dataclasses.asdict(target)
    keep = ~tensors.pop("is_crowd")
    return {name: tensor[keep].to(device) for name, tensor in tensors.items()}
