from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.data import synthetic
from trainers.data.dataset import DatasetRequest
from trainers.data.image_file import ImageFormat


@given(samples=st.integers(1, 1000), classes=st.integers(2, 300))
def test_images_are_the_same_whenever_they_are_asked_for(samples: int, classes: int) -> None:
    request = DatasetRequest(
        image_format=ImageFormat(size=2, mode="grey"),
        synthetic_images=samples,
        synthetic_classes=classes,
    )
    dataset, again = synthetic.make(request), synthetic.make(request)
    numbers = torch.arange(samples)
    images = dataset.train.take(numbers)
    assert torch.equal(images.inputs, again.train.take(numbers).inputs)
    assert images.inputs.shape == (samples, 1, 2, 2)
    assert len(dataset.train) == samples
    assert len(dataset.held_out) >= 1
    assert len(dataset.classes) == classes
    assert images.labels.tolist() == [number % classes for number in range(samples)]


def test_one_image_has_one_class() -> None:
    request = DatasetRequest(
        image_format=ImageFormat(size=8, mode="rgb"), synthetic_images=2000, synthetic_classes=300
    )
    images = synthetic.make(request).train.take(torch.arange(2000))
    seen: dict[bytes, int] = {}
    for pixels, label in zip(images.inputs, images.labels.tolist(), strict=True):
        assert seen.setdefault(pixels.numpy().tobytes(), label) == label
