from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from trainers.data.batches import Batches
from trainers.data.images import RandomCrop, Samples
from trainers.data.order import Order

DEADLINE_SECONDS = 30


class Recorded:
    """Images whose first pixel is their number; each may have to wait to be read."""

    def __init__(self, *, broken: int | None = None) -> None:
        self.taken: list[list[int]] = []
        self.changed = threading.Condition()
        self.broken = broken

    def __len__(self) -> int:
        return 40

    def take(self, numbers: Tensor) -> Samples:
        if self.broken in numbers.tolist():
            raise OSError(f"image {self.broken} cannot be read")
        with self.changed:
            self.taken.append(numbers.tolist())
            self.changed.notify_all()
        pixels = numbers.to(torch.uint8)[:, None, None, None].expand(-1, 1, 2, 2)
        return Samples(inputs=pixels.clone(), labels=numbers)

    def wait_until_taken(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.taken) >= count, DEADLINE_SECONDS)


class Varied(Recorded):
    """Images without two equal pixels."""

    def take(self, numbers: Tensor) -> Samples:
        pixels = torch.arange(4).reshape(1, 1, 2, 2) * 40 + numbers[:, None, None, None]
        return Samples(inputs=pixels.to(torch.uint8), labels=numbers)


def batches(source: Recorded, *, steps: int = 10, **augmentation: Any) -> Batches:
    order = Order(samples=40, batch_size=8, seed=1)
    return Batches(
        source,
        order,
        lambda items: items[1::2],
        steps=steps,
        **augmentation,
    )


def test_the_next_shares_are_made_before_they_are_asked_for() -> None:
    source = Recorded()
    ready = batches(source)
    ready.take(0)
    source.wait_until_taken(3)
    order = Order(samples=40, batch_size=8, seed=1)
    assert source.taken == [order.batch(step)[1::2].tolist() for step in range(3)]
    ready.take(1)
    source.wait_until_taken(4)
    assert len(source.taken) == 4  # two ahead, no more


@pytest.mark.parametrize(
    "augmentation", [{}, {"shift_pixels": 1}, {"crop": RandomCrop(size=2, least_area=0.1)}]
)
def test_a_share_follows_from_its_step_alone(augmentation: dict[str, Any]) -> None:
    order = Order(samples=40, batch_size=8, seed=1)
    ready = batches(Recorded(), **augmentation)
    for step in (0, 1, 1, 7, 3, 12):
        share, again = ready.take(step), batches(Recorded(), **augmentation).take(step)
        assert share.labels.tolist() == order.batch(step)[1::2].tolist()
        assert torch.equal(share.inputs, again.inputs)
        if not augmentation:
            assert torch.equal(share.inputs[:, 0, 0, 0].long(), share.labels)


def test_crops_do_not_depend_on_the_ranks() -> None:
    order = Order(samples=40, batch_size=8, seed=1)
    crop = RandomCrop(size=2, least_area=0.1)

    def inputs(share: Callable[[Tensor], Tensor]) -> Tensor:
        return Batches(Varied(), order, share, steps=10, crop=crop).take(7).inputs

    alone = inputs(lambda items: items)
    assert torch.equal(inputs(lambda items: items[1::2]), alone[1::2])
    assert torch.equal(inputs(lambda items: items[2::3]), alone[2::3])


def test_nothing_is_made_beyond_the_last_step() -> None:
    source = Recorded()
    ready = batches(source, steps=2)
    ready.take(0)
    ready.take(1)
    assert len(source.taken) == 2


def test_what_cannot_be_read_fails_the_step_that_needs_it() -> None:
    order = Order(samples=40, batch_size=8, seed=1)
    ready = batches(Recorded(broken=int(order.batch(1)[1])))
    ready.take(0)
    with pytest.raises(OSError, match="cannot be read"):
        ready.take(1)


def test_pixels_and_labels_go_to_the_device_but_labels_that_are_numbers_of_images_stay() -> None:
    """On any device that is not the CPU; `tests/gpu` has the copies on CUDA."""
    meta = torch.device("meta")
    for moves_labels, where in ((True, "meta"), (False, "cpu")):
        share = batches(Recorded(), device=meta, moves_labels=moves_labels).take(0)
        assert (share.inputs.device.type, share.labels.device.type) == ("meta", where)
