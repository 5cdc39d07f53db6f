"""`--export onnx`: the model is written for ONNX Runtime, and answers as in torch."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import trainers.evaluate
from tests.unit.trainers import drawn_boxes
from trainers.data.dataset import DatasetRequest
from trainers.data.image_file import ImageFormat
from trainers.data.images import Samples
from trainers.data.synthetic import make
from trainers.errors import ExportDiffers
from trainers.serving import onnx_file
from trainers.serving.model_folder import Model, load_model

ONNX = ("--export", "onnx")
CPU = torch.device("cpu")
GREY_8 = ImageFormat(size=8, mode="grey")
IMAGES = ("--dataset", "synthetic", "--synthetic-images", "64", "--synthetic-classes", "4")
EXPORTED = {"model.onnx", "export.json"}


def answers(folder: Path, pixels: Tensor) -> Tensor:
    """What ONNX Runtime computes of the file beside the model."""
    runtime: Any = importlib.import_module("onnxruntime")
    session = runtime.InferenceSession(folder / "model.onnx")
    return torch.from_numpy(session.run(["logits"], {"pixels": pixels.numpy()})[0])


def assert_answers_as_torch(folder: Path) -> None:
    """Compare the file with the weights beside it, on the samples that were held out of both."""
    request = DatasetRequest(synthetic_images=64, synthetic_classes=4, image_format=GREY_8)
    pixels = make(request).held_out.take(torch.arange(11)).inputs
    with torch.no_grad():
        expected = load_model(folder, CPU).network.eval()(pixels / 127.5 - 1)
    assert expected.argmax(dim=1).unique().numel() > 1  # it is a model of these images
    assert answers(folder, pixels) == pytest.approx(expected, abs=1e-4)
    assert answers(folder, pixels[:1]) == pytest.approx(expected[:1], abs=1e-4)


def test_the_exported_model_answers_as_the_trained_one(refuse: Any) -> None:
    folder = refuse(*ONNX, code=0).results / "model"
    about = json.loads((folder / "export.json").read_text())
    assert about["label_agreement"] == 1
    assert 0 <= about["greatest_difference"] < 1e-4
    assert about["versions"].keys() == {"torch", "onnxruntime", "onnxscript"}
    assert_answers_as_torch(folder)


def test_a_model_is_exported_after_its_training(
    refuse: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = refuse(code=0).results / "model"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert not before.keys() & EXPORTED
    assert trainers.evaluate.main(["--model", str(folder), *IMAGES, *ONNX]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert after.keys() - before.keys() == EXPORTED
    assert {name: after[name] for name in before} == before
    assert_answers_as_torch(folder)


def test_a_file_that_answers_otherwise_is_not_kept(tmp_path: Path) -> None:
    class Other(nn.Module):
        """Answers otherwise the second time, when it is compared."""

        calls = 0

        def forward(self, pixels: Tensor) -> Tensor:
            self.calls += not torch.compiler.is_exporting()
            sums = pixels.sum(dim=(1, 2, 3))
            return torch.stack([sums, -sums], dim=1) * (-1) ** self.calls

    pixels = torch.randint(0, 256, (5, 1, 8, 8), dtype=torch.uint8)
    held_out = Samples(inputs=pixels, labels=torch.zeros(5, dtype=torch.int64))
    other = Model(network=Other(), architecture="other", classes=("a", "b"), image_format=GREY_8)
    with pytest.raises(ExportDiffers, match="leave --export out"):
        onnx_file.export_onnx(tmp_path, other, held_out)
    assert not list(tmp_path.glob("*.onnx"))


def test_missing_packages_are_told_before_training(
    refuse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_file, "find_spec", {}.get)
    failed = refuse(*ONNX)
    assert "pip install onnxruntime onnxscript" in failed.result("error")["message"]
    assert "step 1" not in failed.seen


def test_a_detector_is_refused_before_training(refuse: Any, tmp_path: Path) -> None:
    boxes = drawn_boxes.write_dataset(tmp_path)
    detector = ("--model", drawn_boxes.ARCHITECTURE, "--image-mode", "rgb")
    failed = refuse(*ONNX, *boxes, *detector)
    assert "is for classifiers of images" in failed.result("error")["message"]
