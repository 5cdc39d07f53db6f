from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.schedule import decay_steps, learning_rate, warm_up_steps


@given(
    steps=st.integers(1, 500),
    peak=st.floats(1e-6, 10),
    epochs=st.none() | st.floats(0, 600),
    steps_per_epoch=st.integers(1, 50),
)
def test_the_rate_rises_to_its_peak_once_and_falls(
    steps: int, peak: float, epochs: float | None, steps_per_epoch: int
) -> None:
    warm_up = warm_up_steps(steps, steps_per_epoch, epochs)
    rates = [learning_rate(step, steps=steps, peak=peak, warm_up=warm_up) for step in range(steps)]
    top = rates.index(max(rates))
    assert max(rates) == pytest.approx(peak)
    assert all(rate > 0 for rate in rates)
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)


def test_the_rate_of_a_hundred_steps() -> None:
    def rate(step: int) -> float:
        return learning_rate(step, steps=100, peak=1.0, warm_up=warm_up_steps(100, 5, None))

    assert rate(0) == pytest.approx(0.1)
    assert rate(9) == rate(10) == pytest.approx(1.0)
    assert rate(55) == pytest.approx(0.5)
    assert rate(99) < 0.001


def test_a_step_schedule_takes_a_tenth_at_the_end_of_each_epoch_named() -> None:
    decay_at = decay_steps((30, 60, 80), steps_per_epoch=10)
    rates = [
        learning_rate(step, steps=900, peak=0.1, warm_up=50, schedule="step", decay_at=decay_at)
        for step in (48, 49, 299, 300, 599, 600, 799, 800, 899)
    ]
    assert rates == pytest.approx([0.098, 0.1, 0.1, 0.01, 0.01, 1e-3, 1e-3, 1e-4, 1e-4])


def test_a_constant_schedule_stays_at_its_peak() -> None:
    rates = [
        learning_rate(step, steps=9, peak=0.1, warm_up=2, schedule="constant") for step in range(9)
    ]
    assert rates == [0.05, *[0.1] * 8]


def test_warm_up_follows_the_global_batch() -> None:
    images = 6400
    for batch_size in (64, 640):
        per_epoch = images // batch_size
        assert warm_up_steps(90 * per_epoch, per_epoch, 5) * batch_size == 5 * images
