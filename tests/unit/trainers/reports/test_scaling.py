from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.reports.scaling import Scaling

RATE = st.floats(1, 1e6)  # beyond, 1 - x loses the digits that are compared


def test_a_case_by_hand() -> None:
    """4 devices of 100 images/s: 80 each beside the others, 288 together."""
    scaling = Scaling(devices=4, alone=100, side_by_side=80, together=288)
    assert scaling.efficiency == pytest.approx(0.72)
    assert scaling.contention_fraction == pytest.approx(0.2)
    assert scaling.communication_fraction == pytest.approx(0.1)


@given(st.integers(1, 1024), RATE, RATE, RATE)
def test_the_losses_make_up_the_efficiency(
    devices: int, alone: float, side_by_side: float, together: float
) -> None:
    scaling = Scaling(devices=devices, alone=alone, side_by_side=side_by_side, together=together)
    kept = (1 - scaling.communication_fraction) * (1 - scaling.contention_fraction)
    assert kept == pytest.approx(scaling.efficiency, rel=1e-6, abs=1e-9)


def test_one_device_that_is_as_fast_as_itself_is_ideal() -> None:
    report = Scaling(devices=1, alone=7, side_by_side=7, together=7).report()
    assert (report["efficiency"], report["communication_fraction"]) == (1, 0)
