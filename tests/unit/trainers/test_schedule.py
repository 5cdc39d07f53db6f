from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.schedule import learning_rate


@given(steps=st.integers(1, 500), peak=st.floats(1e-6, 10))
def test_the_rate_rises_to_its_peak_once_and_falls(steps: int, peak: float) -> None:
    rates = [learning_rate(step, steps=steps, peak=peak) for step in range(steps)]
    top = rates.index(max(rates))
    assert max(rates) == pytest.approx(peak)
    assert all(rate > 0 for rate in rates)
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)


def test_the_rate_of_a_hundred_steps() -> None:
    def rate(step: int) -> float:
        return learning_rate(step, steps=100, peak=1.0)

    assert rate(0) == pytest.approx(0.1)
    assert rate(9) == rate(10) == pytest.approx(1.0)
    assert rate(55) == pytest.approx(0.5)
    assert rate(99) < 0.001
