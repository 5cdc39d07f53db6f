from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.reports.learning_curve import HeldOutPoint, LearningCurve, TrainPoint

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
STEPS = st.integers(min_value=1, max_value=10**9)
CURVES = st.builds(
    LearningCurve,
    train=st.lists(st.builds(TrainPoint, step=STEPS, loss=NUMBERS, learning_rate=NUMBERS)),
    held_out=st.lists(st.builds(HeldOutPoint, step=STEPS, loss=NUMBERS, accuracy=NUMBERS)),
)


@given(CURVES)
def test_a_checkpoint_keeps_it_to_the_bit(curve: LearningCurve) -> None:
    assert LearningCurve.from_bytes(curve.to_bytes()) == curve


@pytest.mark.parametrize("content", [b"", b"[]", b'{"train": [{}], "held_out": []}'])
def test_what_is_no_curve_is_refused(content: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        LearningCurve.from_bytes(content)
