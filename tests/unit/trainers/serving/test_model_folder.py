from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from trainers.data.image_file import ImageFormat
from trainers.errors import ModelUnreadable
from trainers.serving.model_folder import load_model, new_model, save_model

CPU = torch.device("cpu")
GREY_8 = ImageFormat(size=8, mode="grey")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(tmp_path / "model", new_model("resnet8", ("a", "b"), GREY_8), {"seed": 3})
    return tmp_path / "model"


@pytest.mark.parametrize("architecture", ["resnet8", "resnet14", "resnet20"])
@pytest.mark.parametrize("mode", ["grey", "rgb"])
def test_a_saved_model_says_the_same(architecture: str, mode: str, tmp_path: Path) -> None:
    image_format = ImageFormat(size=9, mode=mode)
    model = new_model(architecture, ("a", "b", "c"), image_format)
    save_model(tmp_path, model, {})
    loaded = load_model(tmp_path, CPU)
    images = torch.randn(2, image_format.channels, 9, 9)
    assert torch.equal(loaded.network(images), model.network(images))
    assert model.network(images).shape == (2, 3)
    assert loaded.classes == ("a", "b", "c")
    assert loaded.image_format == image_format


def test_the_description_tells_what_is_needed(folder: Path) -> None:
    description = json.loads((folder / "model.json").read_bytes())
    assert description == {
        "format": 1,
        "architecture": "resnet8",
        "classes": ["a", "b"],
        "image": {"size": 8, "mode": "grey"},
        "seed": 3,
    }


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"architecture": "resnet9"},
        {"classes": ["a", "b", "c"]},
        {"classes": None},
        {"image": {"size": 8, "mode": "cmyk"}},
        {"image": None},
    ],
)
def test_a_model_of_another_kind_is_refused(change: dict[str, object], folder: Path) -> None:
    path = folder / "model.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | change))
    with pytest.raises(ModelUnreadable, match="model"):
        load_model(folder, CPU)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
@pytest.mark.parametrize("content", [None, b"", b"\x80\x04nonsense"])
def test_a_damaged_model_is_refused(name: str, content: bytes | None, folder: Path) -> None:
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(ModelUnreadable, match="no model can be read from"):
        load_model(folder, CPU)
