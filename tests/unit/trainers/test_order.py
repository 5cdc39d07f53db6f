from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.order import Batch, Order, shifted, shifts

SEEDS = st.integers(0, 2**31)


@given(samples=st.integers(1, 60), batch_size=st.integers(1, 20), seed=SEEDS)
def test_an_epoch_sees_each_sample_once_but_for_the_remainder(
    samples: int, batch_size: int, seed: int
) -> None:
    order = Order(samples=samples, batch_size=batch_size, seed=seed)
    batches = [order.batch(step) for step in range(order.steps_per_epoch)]
    seen = [int(sample) for batch in batches for sample in batch.samples]
    assert all(len(batch.samples) == batch_size for batch in batches)
    assert {batch.epoch for batch in batches} == {0}
    if samples >= batch_size:
        assert len(set(seen)) == len(seen) == samples - samples % batch_size
    else:
        assert set(seen) == set(range(samples))
    assert order.batch(order.steps_per_epoch).epoch == 1


@given(step=st.integers(0, 200), seed=SEEDS, ranks=st.integers(1, 8))
@settings(max_examples=50)
def test_a_batch_depends_on_nothing_that_was_asked_before(step: int, seed: int, ranks: int) -> None:
    order = Order(samples=37, batch_size=8, seed=seed)
    batch = order.batch(step)
    order.batch(0)
    again = Order(samples=37, batch_size=8, seed=seed).batch(step)
    assert torch.equal(batch.samples, again.samples)
    shares = [batch.samples[rank::ranks] for rank in range(ranks)]
    assert sorted(torch.cat(shares).tolist()) == sorted(batch.samples.tolist())


def test_seed_and_epoch_change_the_order() -> None:
    first, second = (Order(samples=50, batch_size=50, seed=seed) for seed in (0, 1))
    assert not torch.equal(first.batch(0).samples, second.batch(0).samples)
    assert not torch.equal(first.batch(0).samples, first.batch(1).samples)


def test_a_samples_shift_does_not_depend_on_its_batch() -> None:
    whole = Batch(epoch=3, samples=torch.arange(20))
    part = Batch(epoch=3, samples=torch.tensor([7, 3]))
    of_whole = shifts(whole, samples=20, seed=5, pixels=2)
    assert torch.equal(shifts(part, samples=20, seed=5, pixels=2), of_whole[[7, 3]])
    assert int(of_whole.abs().max()) == 2
    later = shifts(Batch(epoch=4, samples=whole.samples), samples=20, seed=5, pixels=2)
    assert not torch.equal(later, of_whole)


@given(down=st.integers(-2, 2), right=st.integers(-2, 2), channels=st.sampled_from([1, 3]))
def test_a_shifted_image_is_the_image_elsewhere(down: int, right: int, channels: int) -> None:
    images = torch.arange(1, 1 + 2 * channels * 20).reshape(2, channels, 4, 5)
    moved = shifted(images, torch.tensor([[down, right], [0, 0]]))
    for y in range(4):
        for x in range(5):
            inside = 0 <= y - down < 4 and 0 <= x - right < 5
            expected = images[0, :, y - down, x - right] if inside else torch.zeros(channels)
            assert moved[0, :, y, x].tolist() == expected.tolist()
    assert torch.equal(moved[1], images[1])
    assert moved.stride() == images.stride()
