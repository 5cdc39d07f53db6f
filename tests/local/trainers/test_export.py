"""`--export onnx`: the model is written for ONNX Runtime, and answers as in torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch

from tests.unit.trainers import drawn_boxes
from trainers.data.images import Samples
from trainers.errors import ExportDiffers
from trainers.serving import onnx_file
from trainers.serving.model_folder import load_model

ONNX = ("--export", "onnx")


def test_the_exported_model_answers_as_the_trained_one(refuse: Any, tmp_path: Path) -> None:
    folder = refuse(*ONNX, code=0).results / "model"
    about = json.loads((folder / "export.json").read_text())
    assert about["label_agreement"] == 1
    assert 0 <= about["greatest_difference"] < 1e-4
    model = load_model(folder, torch.device("cpu"))
    pixels = torch.randint(0, 256, (5, 1, 8, 8), dtype=torch.uint8)  # another number of images
    session: Any = onnxruntime.InferenceSession(folder / "model.onnx")
    logits = torch.from_numpy(session.run(["logits"], {"pixels": pixels.numpy()})[0])
    with torch.no_grad():
        expected = model.network.eval()(pixels / 127.5 - 1)
    assert logits == pytest.approx(expected, abs=1e-4)

    class Other(torch.nn.Module):
        """Answers otherwise the second time, when it is compared."""

        calls = 0

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            self.calls += not torch.compiler.is_exporting()
            sums = pixels.sum(dim=(1, 2, 3))
            return torch.stack([sums, -sums], dim=1) * (-1) ** self.calls

    held_out = Samples(inputs=pixels, labels=torch.zeros(5, dtype=torch.int64))
    other = type(model)(
        network=Other(), architecture="other", classes=("a", "b"), image_format=model.image_format
    )
    with pytest.raises(ExportDiffers, match="start again without --export"):
        onnx_file.export_onnx(tmp_path, other, held_out)
    assert not list(tmp_path.glob("*.onnx"))


def test_missing_packages_are_told_before_training(
    refuse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_file, "find_spec", dict[str, None]().get)
    failed = refuse(*ONNX)
    assert "pip install onnxruntime onnxscript" in failed.result("error")["message"]
    assert "step 1" not in failed.seen


def test_a_detector_is_refused_before_training(refuse: Any, tmp_path: Path) -> None:

    boxes = drawn_boxes.write_dataset(tmp_path)
    detector = ("--model", drawn_boxes.ARCHITECTURE, "--image-mode", "rgb")
    failed = refuse(*ONNX, *boxes, *detector)
    assert "is for classifiers of images" in failed.result("error")["message"]
