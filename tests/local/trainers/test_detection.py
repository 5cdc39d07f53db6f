"""Detectors on a small COCO dataset of drawn shapes, in two processes with Gloo."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.local.trainers.drawn_shapes import draw_shapes
from tests.unit.trainers.small_datasets import freeze
from trainers import evaluate
from trainers.serving.scoring import Scorer

MASK_RCNN = "tests.local.trainers.own_example:small_mask_rcnn"
SIZE = 64


@pytest.fixture(scope="session")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """48 images of a box and a disc each, their annotations, and the manifest of all that."""
    folder = draw_shapes(tmp_path_factory.mktemp("coco"), images=48, size=SIZE)
    return folder, freeze(folder, tmp_path_factory.mktemp("coco-manifest"))


@pytest.fixture
def on_shapes(shapes: tuple[Path, Path]) -> tuple[str, ...]:
    """A run's options."""
    data, manifest = shapes
    return (
        *("--dataset", "coco", "--data", str(data), "--manifest", str(manifest)),
        *("--image-mode", "rgb", "--image-size", str(SIZE), "--batch-size", "8"),
        *("--learning-rate", "0.005"),
    )


@pytest.mark.timeout(300)  # two runs of a network that CPUs are slow at
def test_mask_rcnn_learns_shapes_and_resumes_to_the_same_bits(
    train: Any, on_shapes: tuple[str, ...], shapes: tuple[Path, Path], capsys: Any
) -> None:
    options = (*on_shapes, "--model", MASK_RCNN, "--epochs", "4", "--checkpoint-every", "12")
    done = train(*options)
    metrics, report = done.result("metrics"), done.result("report")
    losses = list(done.losses.values())
    assert sum(losses[-4:]) < 0.7 * sum(losses[:4])
    assert metrics["average_precision"] == metrics["mask_ap"]
    assert 0 <= metrics["box_ap"] <= metrics["box_ap_50"] <= 1
    assert set(report["average_precision"]["mask"]) >= {"class box", "class disc"}
    assert done.result("model/model")["architecture"] == MASK_RCNN

    weights = done.weights
    max((done.folder / "checkpoints").glob("step-*.json")).unlink()
    again = train(*options, folder=done.folder)
    assert "resumed from step 12\n" in again.seen
    assert again.weights == weights
    assert_found_alike(done, shapes, capsys)


def assert_found_alike(done: Any, shapes: tuple[Path, Path], capsys: Any) -> None:
    """Use the model with `trainers.evaluate`, and with a scorer on an image twice as wide."""
    data, manifest = shapes
    model = done.folder / "results" / "model"
    of_data = ["--dataset", "coco", "--data", str(data), "--manifest", str(manifest)]
    arguments = ["--model", str(model), "--architecture", MASK_RCNN, *of_data]
    assert evaluate.main(arguments) == 0
    metrics, scored = done.result("metrics"), json.loads(capsys.readouterr().out)
    assert scored["held_out_samples"] == metrics["held_out_samples"]
    for name in ("average_precision", "box_ap_50", "mask_ap_50"):
        assert scored[name] == pytest.approx(metrics[name], abs=0.02)  # in other batches
    assert scored["loss"] == pytest.approx(metrics["loss"], rel=0.2)  # of other proposals

    scorer = Scorer(model, torch.device("cpu"), MASK_RCNN)
    with Image.open(data / "images" / "000.png") as image:
        files = [png(image), png(image.resize((2 * SIZE, SIZE)))]
    as_it_is, wide = scorer.predict(files, 0.05)
    assert (wide["width"], wide["height"]) == (2 * SIZE, SIZE)
    assert as_it_is["detections"]
    first = as_it_is["detections"][0]
    expected = pytest.approx(np.multiply(first["box"], (2, 1, 2, 1)), abs=4)
    again = [found for found in wide["detections"] if found["box"] == expected]
    assert first["label"] in [found["label"] for found in again]
    assert again[0]["mask"]["size"] == [SIZE, 2 * SIZE]


def png(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.timeout(300)
def test_it_trains_in_shards_and_is_compared_with_its_champion(
    train: Any, on_shapes: tuple[str, ...]
) -> None:
    options = (*on_shapes, "--model", MASK_RCNN, "--epochs", "1")
    first = train(*options)
    champion = ("--champion", str(first.folder / "results" / "model"))
    second = train(*options, "--parallel", "fsdp", *champion)
    was = first.result("metrics")["average_precision"]
    assert second.result("metrics")["champion_average_precision"] == was
    assert second.losses[1] == pytest.approx(first.losses[1], rel=1e-4)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--model", "resnet8"), 1, "are for detectors"),
        (("--annotations", "other.json"), 65, "has no file other.json"),
    ],
    ids=["a classifier does not learn from boxes", "annotations have to be of the dataset"],
)
def test_what_cannot_be_detected_is_told(
    options: tuple[str, ...], code: int, said: str, refuse: Any, on_shapes: tuple[str, ...]
) -> None:
    failed = refuse(*on_shapes, "--model", "mask-rcnn-resnet18", *options, code=code)
    assert said in failed.result("error")["message"]
