from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.schedule import learning_rate, scaled, warm_up_steps


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


def test_warm_up_and_rate_follow_the_global_batch() -> None:
    images = 6400
    for batch_size, rate in ((64, 0.1), (640, 1.0)):
        per_epoch = images // batch_size
        assert warm_up_steps(90 * per_epoch, per_epoch, 5) * batch_size == 5 * images
        assert scaled(0.1, batch_size=batch_size, of_batch_size=64) == pytest.approx(rate)
