from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from trainers.data.image_file import ImageFormat
from trainers.data.images import Images
from trainers.errors import ModelUnreadable
from trainers.evaluate import evaluate
from trainers.parallelism.launch import Launch
from trainers.parallelism.world import World
from trainers.serving.model_folder import Model


class Oracle(nn.Module):
    """Tells the class that the image's only pixel spells: its place among `classes`."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes

    def forward(self, images: Tensor) -> Tensor:
        told = torch.round((images[:, 0, 0, 0] + 1) * 127.5).long()
        return nn.functional.one_hot(told, self.classes).float() * 100


def model_of(*classes: str) -> Model:
    return Model(
        network=Oracle(len(classes)),
        architecture="oracle",
        classes=classes,
        image_format=ImageFormat(size=1, mode="grey"),
    )


def images_of(told: list[int], labels: list[int]) -> Images:
    pixels = torch.tensor(told, dtype=torch.uint8).reshape(-1, 1, 1, 1)
    return Images(pixels=pixels, labels=torch.tensor(labels))


@pytest.fixture
def world() -> World:
    return World.join(Launch(), timeout_seconds=1)


def test_accuracy_loss_and_confusion(world: World) -> None:
    images = images_of(told=[0, 1, 1, 0], labels=[0, 1, 1, 1])
    evaluation = evaluate(model_of("a", "b"), images, ["a", "b"], world)
    assert evaluation.accuracy == 0.75
    assert evaluation.loss == pytest.approx(100 / 4)
    assert evaluation.confusion.tolist() == [[1, 0, 0], [1, 2, 0]]


def test_classes_are_matched_by_name_not_by_place(world: World) -> None:
    images = images_of(told=[0, 1], labels=[1, 0])
    evaluation = evaluate(model_of("b", "a"), images, ["a", "b"], world)
    assert evaluation.accuracy == 1
    assert evaluation.loss == pytest.approx(0)


def test_what_a_model_does_not_know_it_gets_wrong(world: World) -> None:
    images = images_of(told=[0, 1, 0, 0], labels=[0, 1, 2, 2])
    evaluation = evaluate(model_of("a", "b"), images, ["a", "b", "c"], world)
    assert evaluation.accuracy == 0.5
    assert evaluation.loss == math.inf


def test_a_class_that_the_data_lacks_is_wrong_too(world: World) -> None:
    images = images_of(told=[0, 2], labels=[0, 1])
    evaluation = evaluate(model_of("a", "b", "z"), images, ["a", "b"], world)
    assert evaluation.accuracy == 0.5
    assert evaluation.confusion.tolist() == [[1, 0, 0], [0, 0, 1]]


def test_a_detector_is_no_classifier(world: World) -> None:
    model = model_of("a", "b")
    model.network.computes_own_loss = True  # type: ignore[assignment]  # as a detector has it
    with pytest.raises(ModelUnreadable, match="is a detector"):
        evaluate(model, images_of([0], [0]), ["a", "b"], world)
