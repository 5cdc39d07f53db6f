from __future__ import annotations

import pytest

from localazure.machinelearning.fields import parse_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("PT2M", 120), ("PT0S", 0), ("PT1H30M", 5400), ("P1DT12H", 129_600), ("PT1.5S", 1.5)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "P", "PT", "2M", "P1M", "P1Y", "PT-1S", "120"])
def test_an_invalid_duration_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="ISO 8601"):
        parse_seconds(text)
