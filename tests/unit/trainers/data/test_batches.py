from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trainers.data import batches as module
from trainers.data.batches import Batches
from trainers.data.images import Samples
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


def batches(source: Recorded, *, steps: int = 10, shift_pixels: int = 0) -> Batches:
    order = Order(samples=40, batch_size=8, seed=1)
    return Batches(
        source,
        order,
        lambda items: items[1::2],
        shift_pixels=shift_pixels,
        steps=steps,
    )


def test_the_next_shares_are_made_before_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_CHUNK_BYTES", 0)  # a step at a time
    source = Recorded()
    ready = batches(source)
    ready.take(0)
    source.wait_until_taken(3)
    order = Order(samples=40, batch_size=8, seed=1)
    assert source.taken == [order.batch(step).samples[1::2].tolist() for step in range(3)]
    ready.take(1)
    source.wait_until_taken(4)
    assert len(source.taken) == 4  # two ahead, no more


def test_small_shares_are_made_some_steps_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK_BYTES", 3 * 4 * 4)  # three shares of four images
    source = Recorded()
    ready = batches(source)
    order = Order(samples=40, batch_size=8, seed=1)
    for step in range(10):
        share = ready.take(step)
        assert share.labels.tolist() == order.batch(step).samples[1::2].tolist()
        assert torch.equal(share.inputs[:, 0, 0, 0].long(), share.labels)
    assert [len(numbers) // 4 for numbers in source.taken] == [1, 1, 1, 3, 3, 1]


@given(st.integers(0, 60), st.integers(1, 12), st.integers(0, 9))
@settings(max_examples=25)
def test_a_share_is_the_same_however_many_are_made_at_a_time(
    chunk_bytes: int, steps: int, first: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK_BYTES", chunk_bytes)
        ready = batches(Recorded(), steps=steps, shift_pixels=1)
        wanted = [
            batches(Recorded(), shift_pixels=1).take(step) for step in range(first, first + 6)
        ]
        for step, share in enumerate(wanted, start=first):
            again = ready.take(step)
            assert torch.equal(share.inputs, again.inputs)
            assert torch.equal(share.labels, again.labels)


def test_nothing_is_made_beyond_the_last_step() -> None:
    source = Recorded()
    ready = batches(source, steps=2)
    ready.take(0)
    ready.take(1)
    assert len(source.taken) == 2


def test_what_cannot_be_read_fails_the_step_that_needs_it() -> None:
    order = Order(samples=40, batch_size=8, seed=1)
    ready = batches(Recorded(broken=int(order.batch(1).samples[1])))
    ready.take(0)
    with pytest.raises(OSError, match="cannot be read"):
        ready.take(1)
