from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.unit.trainers import drawn_boxes
from trainers.data.image_file import ImageFormat
from trainers.data.images import to_input
from trainers.detection.coco import decode_mask
from trainers.serving.model_folder import load_model, new_model, save_model
from trainers.serving.scoring import MOST_IMAGES, RequestInvalid, Scorer

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


def test_an_image_that_is_none_is_named(scorer: Scorer) -> None:
    with pytest.raises(RequestInvalid, match="image 1: not an image"):
        scorer.predict([png(0), b"hello"])


def test_too_many_are_refused_and_none_is_nothing(scorer: Scorer) -> None:
    with pytest.raises(RequestInvalid, match=f"at most {MOST_IMAGES}"):
        scorer.predict([b""] * (MOST_IMAGES + 1))
    assert scorer.predict([]) == []


@pytest.fixture
def finder(tmp_path: Path) -> Scorer:
    """A detector of 64-pixel squares; the test sends images of 32 by 16."""
    folder = drawn_boxes.save_finder(tmp_path, "red", "green", size=64)
    return Scorer(folder, CPU, drawn_boxes.ARCHITECTURE)


def test_detections_are_in_the_pixels_of_the_image_as_it_was_sent(finder: Scorer) -> None:
    files = [
        drawn_boxes.image_with({"green": (2, left, 7, 9), "red": (0, 0, 3, 1)}) for left in range(6)
    ]
    files.append(drawn_boxes.image_with({}))  # nothing is on it, and the batch is not full
    predictions = finder.predict(files)
    assert predictions.pop() == {"width": 32, "height": 16, "detections": []}
    for top, prediction in enumerate(predictions):
        by_label = {found.pop("label"): found for found in prediction["detections"]}
        assert by_label.keys() == {"red", "green"}
        green = by_label["green"]
        assert (green["score"], green["box"]) == (1, [2, top, 7, 9])
        mask = decode_mask(green["mask"])
        expected = np.zeros((16, 32), np.uint8)
        expected[top:9, 2:7] = 1
        assert np.array_equal(mask, expected)
        assert by_label["red"]["box"] == [0, 0, 3, 1]
    json.dumps(predictions)


def test_what_is_less_sure_than_the_threshold_is_left_out(finder: Scorer) -> None:
    """The score of brightness 153 of 255 is 0.2."""
    file = drawn_boxes.image_with({"red": (4, 4, 8, 8)}, brightness=153)

    def found(threshold: float | None) -> int:
        return len(finder.predict([file], threshold)[0]["detections"])

    assert [found(None), found(0), found(0.19), found(0.21)] == [0, 1, 1, 0]


@pytest.mark.parametrize("threshold", [-0.1, 1.5, float("nan")])
def test_a_threshold_that_is_none_is_refused(finder: Scorer, threshold: float) -> None:
    with pytest.raises(RequestInvalid, match="not a number from 0 to 1"):
        finder.predict([], threshold)


def test_a_classifier_has_no_threshold(scorer: Scorer) -> None:
    with pytest.raises(RequestInvalid, match="for detectors"):
        scorer.predict([png(0)], 0.5)
