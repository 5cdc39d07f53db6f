from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trainers.detection.coco import AnnotatedImage, Instance, decode_mask, encode_masks
from trainers.serving.scoring import describe, rescaled

LENGTHS = st.integers(1, 60)
FOUND = {
    "boxes": torch.tensor([[0.0, 0, 4, 4], [2, 2, 8, 8], [1, 1, 3, 3]]),
    "labels": torch.tensor([1, 2, 1]),
    "scores": torch.tensor([0.25, 0.875, 0.5]),
}


def described(detected: dict[str, torch.Tensor], **how: Any) -> list[dict[str, Any]]:
    told = describe(detected, ("car", "tree"), 8, (16, 4), **({"score_threshold": 0.5} | how))
    assert (told["width"], told["height"]) == (16, 4)
    return told["detections"]


def test_sure_detections_are_told_in_the_images_pixels_the_surest_first() -> None:
    assert described(FOUND) == [
        {"label": "tree", "score": 0.875, "box": [4, 1, 16, 4]},
        {"label": "car", "score": 0.5, "box": [2, 0.5, 6, 1.5]},
    ]
    assert len(described(FOUND, score_threshold=0)) == 3
    assert described(FOUND, score_threshold=1) == []
    nothing = {name: tensor[:0] for name, tensor in FOUND.items()}
    assert described(nothing) == []


def test_masks_are_run_lengths_of_the_image() -> None:
    drawn = torch.zeros(3, 1, 8, 8)
    drawn[1, 0, 2:8, 2:8] = 1
    tree, car = described({**FOUND, "masks": drawn})
    assert tree["mask"]["size"] == [4, 16]
    expected = np.zeros((4, 16), np.uint8)
    expected[1:4, 4:16] = 1
    assert np.array_equal(decode_mask(tree["mask"]), expected)
    assert not decode_mask(car["mask"]).any()


@given(
    st.integers(8, 64),
    LENGTHS,
    LENGTHS,
    st.lists(st.tuples(*[st.floats(0, 1)] * 4), min_size=1, max_size=5),
)
def test_a_box_scaled_for_training_is_scaled_back(
    square: int, width: int, height: int, corners: list[tuple[float, ...]]
) -> None:
    boxes = np.sort(np.array(corners).reshape(-1, 2, 2), axis=1).reshape(-1, 4)
    boxes = boxes * ((width, height) * 2)
    sides = (boxes[:, 2:] - boxes[:, :2]) * (square / width, square / height)
    boxes = boxes[(sides > 1.001).all(axis=1)]  # smaller ones are not trained on
    [mask] = encode_masks(np.zeros((1, height, width)))
    instances = [Instance(label=1, box=tuple(box), is_crowd=False, mask=mask) for box in boxes]
    image = AnnotatedImage(path="a.png", width=width, height=height, instances=instances)
    scaled = image.target(square)["boxes"].numpy()
    back = rescaled(scaled, square=square, width=width, height=height)
    assert back == pytest.approx(boxes, abs=1e-3)


@given(arrays(np.float32, (3, 4), elements=st.floats(-50, 50, width=32)), LENGTHS, LENGTHS)
def test_no_box_is_beyond_the_image(boxes: np.ndarray, width: int, height: int) -> None:
    left, top, right, bottom = rescaled(boxes, square=32, width=width, height=height).T
    assert ((left >= 0) & (right <= width) & (top >= 0) & (bottom <= height)).all()
