from __future__ import annotations

from collections import OrderedDict

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trainers.data.order import BLOCK, Order, blocks_in_use, lanes

SEEDS = st.integers(0, 2**31)


SMALL_WINDOW = 4 * BLOCK


@given(
    samples=st.integers(1, 60) | st.integers(1, 9 * BLOCK),
    batch_size=st.integers(1, 50),
    seed=SEEDS,
)
@settings(max_examples=100)
def test_an_epoch_sees_each_sample_once_but_for_the_remainder(
    samples: int, batch_size: int, seed: int
) -> None:
    order = Order(samples=samples, batch_size=batch_size, seed=seed, shuffle_window=SMALL_WINDOW)
    batches = [order.batch(step) for step in range(order.steps_per_epoch)]
    seen = torch.cat(batches).tolist()
    assert all(len(batch) == batch_size for batch in batches)
    if samples >= batch_size:
        assert len(set(seen)) == len(seen) == samples - samples % batch_size
        assert set(seen) <= set(range(samples))
    else:
        assert set(seen) == set(range(samples))


def test_seed_and_epoch_change_the_order() -> None:
    first, second = (Order(samples=50, batch_size=50, seed=seed) for seed in (0, 1))
    assert not torch.equal(first.batch(0), second.batch(0))
    assert not torch.equal(first.batch(0), first.batch(1))


def test_a_samples_draws_do_not_depend_on_its_batch() -> None:
    def draws(batch_size: int, epoch: int) -> Tensor:
        """The draws of each sample, by number."""
        order = Order(samples=20, batch_size=batch_size, seed=5)
        steps = range(epoch * order.steps_per_epoch, (epoch + 1) * order.steps_per_epoch)
        samples = torch.cat([order.batch(step) for step in steps])
        drawn = torch.cat(
            [torch.cat([order.draws(s, 5), order.shifts(s, 2)], dim=1) for s in steps]
        )
        return drawn[samples.argsort()]

    assert torch.equal(draws(4, epoch=3), draws(20, epoch=3))
    assert not torch.equal(draws(4, epoch=3), draws(4, epoch=4))
    assert int(draws(4, epoch=3)[:, 5:].abs().max()) == 2


@given(
    blocks=st.integers(5, 30),
    rest=st.integers(0, BLOCK - 1),
    batch_size=st.sampled_from([4, 8, 12, 30, 64]),
    ranks=st.sampled_from([1, 2, 3, 4]),
    seed=SEEDS,
)
@settings(max_examples=40)
def test_a_rank_reads_block_after_block(
    blocks: int, rest: int, batch_size: int, ranks: int, seed: int
) -> None:
    samples = blocks * BLOCK + rest
    order = Order(samples=samples, batch_size=batch_size, seed=seed, shuffle_window=SMALL_WINDOW)
    capacity = blocks_in_use(
        samples, shuffle_window=SMALL_WINDOW, batch_size=batch_size, ranks=ranks
    )
    loads = 0
    for rank in range(ranks):
        held: OrderedDict[int, None] = OrderedDict()
        for step in range(order.steps_per_epoch):
            for number in order.batch(step)[rank::ranks].tolist():
                loads += number // BLOCK not in held
                held[number // BLOCK] = None
                held.move_to_end(number // BLOCK)
                if len(held) > capacity:
                    held.popitem(last=False)
    stored = -(-samples // BLOCK)
    if lanes(SMALL_WINDOW) % ranks or batch_size % ranks:
        assert loads <= ranks * (stored + lanes(SMALL_WINDOW))
    else:
        assert loads <= stored + lanes(SMALL_WINDOW)  # a cut goes through a block of each lane


def test_a_window_mixes_as_many_blocks_as_it_has_lanes() -> None:
    order = Order(samples=100 * BLOCK, batch_size=64, seed=0)
    blocks = (order.batch(7) // BLOCK).unique()
    assert len(blocks) == lanes(order.shuffle_window) == 48


def test_what_fits_the_window_is_shuffled_as_a_whole() -> None:
    small = Order(samples=500, batch_size=500, seed=3, shuffle_window=500)
    large = Order(samples=500, batch_size=500, seed=3, shuffle_window=10**6)
    assert torch.equal(small.batch(4), large.batch(4))


def test_copies_of_a_sample_share_a_batch_and_have_draws_of_their_own() -> None:
    order = Order(samples=40, batch_size=12, seed=5, repeats=3)
    seen = torch.cat([order.batch(step) for step in range(order.steps_per_epoch)])
    assert sorted(seen.unique(return_counts=True)[1].tolist()) == [3] * 12
    draws = torch.cat([order.draws(step, 5) for step in range(order.steps_per_epoch)])
    assert len(draws.unique(dim=0)) == len(draws) == 36
    for step in range(order.steps_per_epoch):
        batch = order.batch(step)
        assert torch.equal(batch[::3], batch[1::3])
        assert torch.equal(batch[::3], batch[2::3])
