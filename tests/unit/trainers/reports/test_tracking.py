from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainers.reports.tracking import LearningCurve

POINTS = st.lists(
    st.fixed_dictionaries(
        {
            "step": st.integers(min_value=1, max_value=10**9),
            "loss": st.floats(allow_nan=False, allow_infinity=False),
        }
    )
)


@given(st.builds(LearningCurve, train=POINTS, held_out=POINTS))
def test_a_checkpoint_keeps_it_to_the_bit(curve: LearningCurve) -> None:
    assert LearningCurve.from_bytes(curve.to_bytes()) == curve
