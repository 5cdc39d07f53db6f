from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.unit.trainers import drawn_boxes
from trainers.data.image_file import ImageFormat
from trainers.evaluate import evaluate
from trainers.parallelism.launch import Launch
from trainers.parallelism.world import World
from trainers.serving.model_folder import Model

FORMAT = ImageFormat(size=32, mode="rgb")


class Normalised(drawn_boxes.ColourFinder):
    """A detector with running statistics, and a loss that it draws."""

    def __init__(self) -> None:
        super().__init__(2)
        self.normalise = nn.BatchNorm2d(3)

    def forward(self, images: Tensor, targets: list[dict[str, Tensor]] | None = None) -> Any:
        normalised = self.normalise(images)
        if targets is not None:
            return {"drawn": torch.rand(()) + normalised.mean()}
        return super().forward(images)


def test_scoring_changes_nothing_and_finds_the_same_again(tmp_path: Path) -> None:
    dataset = drawn_boxes.load_dataset(tmp_path, size=FORMAT.size)
    network = Normalised()
    model = Model(
        network=network, architecture="own", classes=drawn_boxes.COLOURS, image_format=FORMAT
    )
    before = {name: value.clone() for name, value in network.state_dict().items()}
    world = World.join(Launch(), timeout_seconds=1)
    first = evaluate(model, dataset, world)
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    torch.rand(5)
    assert evaluate(model, dataset, world) == first
    assert first.headline == 1
