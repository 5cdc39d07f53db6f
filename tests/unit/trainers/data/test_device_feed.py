"""On a CPU only: `tests/gpu` has the copies on CUDA."""

from __future__ import annotations

import torch

from trainers.data.device_feed import DeviceFeed
from trainers.data.images import Samples

META = torch.device("meta")  # any device that is not the CPU


class Shares:
    def __init__(self) -> None:
        self.taken: list[int] = []

    def take(self, step: int) -> Samples:
        self.taken.append(step)
        return Samples(inputs=torch.full((2, 1, 2, 2), step).byte(), labels=torch.tensor([0, 1]))


def test_a_share_comes_as_it_is_made() -> None:
    shares = Shares()
    feed = DeviceFeed(shares, torch.device("cpu"), steps=3, moves_labels=True)
    for step in range(3):
        assert feed.take(step).inputs.unique().tolist() == [step]
        feed.prefetch(step + 1)  # a CPU has nothing to copy
    assert shares.taken == [0, 1, 2]


def test_pixels_and_labels_go_to_the_device() -> None:
    share = DeviceFeed(Shares(), META, steps=1, moves_labels=True).take(0)
    assert (share.inputs.device.type, share.labels.device.type) == ("meta", "meta")


def test_labels_that_are_numbers_of_images_stay() -> None:
    share = DeviceFeed(Shares(), META, steps=1, moves_labels=False).take(0)
    assert (share.inputs.device.type, share.labels.device.type) == ("meta", "cpu")
