from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from trainers.data.images import ImageFormat, to_input
from trainers.detection.network import ARCHITECTURES as DETECTORS
from trainers.errors import ModelUnreadable
from trainers.serving.model_folder import load_model, new_model, save_model
from trainers.serving.scoring import MOST_IMAGES, RequestInvalid, Scorer, image_files

CPU = torch.device("cpu")
CLASSES = ("a", "b", "c", "d", "e", "f", "g")


def png(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 8), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels, "L").save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def scorer(tmp_path: Path) -> Scorer:
    torch.manual_seed(1)
    save_model(tmp_path, new_model("resnet8", CLASSES, ImageFormat(size=8, mode="grey")), {})
    return Scorer(tmp_path, CPU)


def test_predictions_are_the_networks_in_the_images_order(scorer: Scorer, tmp_path: Path) -> None:
    files = [png(seed) for seed in range(70)]  # more than one batch
    predictions = scorer.predict(files)
    network = load_model(tmp_path, CPU).network.eval()
    for number in (0, 69):
        pixels = np.asarray(Image.open(io.BytesIO(files[number])))[None, None]
        with torch.inference_mode():
            expected = network(to_input(torch.from_numpy(pixels.copy()), CPU)).softmax(dim=1)[0]
        assert predictions[number]["label"] == CLASSES[int(expected.argmax())]
        assert predictions[number]["probability"] == pytest.approx(expected.max().item(), abs=1e-5)
        top = predictions[number]["top"]
        assert [each["probability"] for each in top] == pytest.approx(
            sorted(expected.tolist(), reverse=True)[:5], abs=1e-5
        )
    json.dumps(predictions)


def test_a_detector_is_refused_by_name(tmp_path: Path) -> None:
    pytest.importorskip("torchvision", reason="detectors are built with it")
    architecture = DETECTORS[0]
    image_format = ImageFormat(size=64, mode="rgb")
    save_model(tmp_path, new_model(architecture, ("a", "b"), image_format), {})
    with pytest.raises(ModelUnreadable, match=f"a detector, {architecture}"):
        Scorer(tmp_path, CPU)


def test_an_image_that_is_none_is_named(scorer: Scorer) -> None:
    with pytest.raises(RequestInvalid, match="image 1: not an image"):
        scorer.predict([png(0), b"hello"])


def test_too_many_are_refused_and_none_is_nothing(scorer: Scorer) -> None:
    with pytest.raises(RequestInvalid, match=f"at most {MOST_IMAGES}"):
        scorer.predict([b""] * (MOST_IMAGES + 1))
    assert scorer.predict([]) == []


@given(st.lists(st.binary()))
def test_base64_in_json_is_what_was_meant(files: list[bytes]) -> None:
    body = json.dumps({"images": [base64.b64encode(file).decode() for file in files]})
    assert image_files(body) == image_files(body.encode()) == files


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("", "no valid JSON"),
        ("[" * 100_000, "no valid JSON"),
        ("[]", "expected"),
        ('{"image": []}', "expected"),
        ('{"images": "x"}', "expected"),
        ('{"images": [3]}', "image 0 is a int"),
        ('{"images": ["", "no base64!"]}', "image 1 is no base64"),
        ('{"images": ["ü"]}', "image 0 is no base64"),
    ],
)
def test_a_malformed_request_is_refused_with_its_reason(body: str, says: str) -> None:
    with pytest.raises(RequestInvalid, match=says):
        image_files(body)


@given(st.text() | st.binary())
def test_whatever_comes_is_taken_or_refused(body: str | bytes) -> None:
    try:
        files = image_files(body)
    except RequestInvalid:
        return
    assert all(isinstance(file, bytes) for file in files)
