from __future__ import annotations

import pytest

from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.fields import read_count, read_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("PT2M", 120), ("PT0S", 0), ("PT1H30M", 5400), ("P1DT12H", 129_600), ("PT1.5S", 1.5)],
)
def test_durations(text: str, seconds: float) -> None:
    assert read_seconds("limits.timeout", text) == seconds


@pytest.mark.parametrize("text", ["", "P", "PT", "2M", "P1M", "P1Y", "PT-1S", "120"])
def test_an_invalid_duration_is_named(text: str) -> None:
    with pytest.raises(ArmError, match=r"limits\.timeout: .* ISO 8601"):
        read_seconds("limits.timeout", text)


@pytest.mark.parametrize("value", ["2", 0, 1001, 1.0])
def test_a_number_that_is_out_of_range_is_named(value: object) -> None:
    assert read_count({"trials": 1000}, "trials", most=1000) == 1000
    assert read_count({}, "trials") is None
    with pytest.raises(ArmError, match=r"limits\.trials is .* a whole number from 1 to 1000"):
        read_count({"trials": value}, "trials", path="limits.", most=1000)
