"""Warm start: weights of a model folder, or a typed error that says what differs."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

from tests.unit.trainers.given_settings import settings_of
from trainers.data.image_file import ImageFormat
from trainers.errors import InitialModelMismatch, ModelUnreadable
from trainers.serving.model_folder import WEIGHTS_NAME, new_model, save_model
from trainers.warm_start import InitialModel, read_initial_model

CLASSES = ("cat", "dog", "owl")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model of grey images of 8 pixels."""
    torch.manual_seed(7)
    folder = tmp_path / "model"
    model = new_model("resnet8", CLASSES, ImageFormat(size=8, mode="grey"))
    save_model(folder, model, {"dataset_version": "v1"})
    return folder


def given(*options: str) -> InitialModel:
    initial = read_initial_model(settings_of(*options))
    assert initial is not None
    return initial


def read(folder: Path, *options: str) -> InitialModel:
    return given("--initial-model", str(folder), "--image-mode", "grey", *options)


def test_without_the_option_there_is_none() -> None:
    assert read_initial_model(settings_of()) is None
    assert read_initial_model(settings_of("--initial-model", "none")) is None


def test_a_network_gets_its_weights_and_may_take_other_image_sizes(folder: Path) -> None:
    initial = read(folder, "--image-size", "16")
    network = new_model("resnet8", CLASSES, ImageFormat(size=16, mode="grey")).network
    initial.copy_weights(network)
    for name, tensor in initial.weights.items():
        assert torch.equal(network.state_dict()[name], tensor)
    initial.check_classes(CLASSES)


def test_the_lineage_names_the_weights_and_their_data(folder: Path) -> None:
    content = (folder / WEIGHTS_NAME).read_bytes()
    assert read(folder).lineage() == {
        "weights_sha256": hashlib.sha256(content).hexdigest(),
        "dataset_version": "v1",
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--model", "resnet20"), "--model resnet8 .* and this run has --model resnet20"),
        (("--image-mode", "rgb"), "--image-mode grey, and this run has .* --image-mode rgb"),
    ],
)
def test_another_architecture_is_refused(
    folder: Path, options: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InitialModelMismatch, match=message):
        read(folder, *options)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (("cat", "dog"), "only in the model: owl"),
        (("cat", "dog", "emu", "owl"), "only in the data: emu"),
        (("cat", "dog", "emu"), "only in the data: emu; only in the model: owl"),
        (("dog", "cat", "owl"), "only in the data: none; only in the model: none"),
        ((*CLASSES, *(f"x{number}" for number in range(9))), "x0, x1, x2, x3, x4 and 4 more"),
    ],
)
def test_other_classes_are_refused_by_name(
    folder: Path, classes: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InitialModelMismatch, match=message) as caught:
        read(folder).check_classes(classes)
    assert "model.warm_start" in str(caught.value)


def test_a_folder_without_a_model_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(ModelUnreadable, match="no model can be read"):
        read(tmp_path)


def test_pretrained_weights_are_taken_where_they_fit(folder: Path) -> None:
    """With another number of classes: all but the last layer."""
    pretrained = given("--pretrained", str(folder))
    pretrained.check_classes(("other", "classes"))
    network = new_model("resnet8", ("a", "b"), ImageFormat(size=8, mode="grey")).network
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    line = pretrained.copy_weights(network)
    taken = {
        name
        for name, tensor in network.state_dict().items()
        if torch.equal(tensor, pretrained.weights[name])
    }
    assert {"head.2.weight", "head.2.bias"} == before.keys() - taken
    assert line == f"initial weights: {len(before) - 2} of the network's {len(before)} tensors"
    assert torch.equal(network.state_dict()["head.2.weight"], before["head.2.weight"])


def test_pretrained_weights_of_another_network_are_refused(folder: Path, tmp_path: Path) -> None:
    pretrained = given("--pretrained", str(folder / WEIGHTS_NAME))
    with pytest.raises(InitialModelMismatch, match="same architecture"):
        pretrained.copy_weights(torch.nn.Linear(2, 2))
    with pytest.raises(ModelUnreadable, match="no weights that can be read"):
        given("--pretrained", str(tmp_path / "none"))
