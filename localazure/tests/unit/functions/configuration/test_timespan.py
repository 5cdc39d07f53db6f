from __future__ import annotations

from datetime import timedelta

import pytest

from localazure.functions.configuration.timespan import parse_timespan


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00:05:00", timedelta(minutes=5)),
        ("1:02:03", timedelta(hours=1, minutes=2, seconds=3)),
        ("01:30", timedelta(hours=1, minutes=30)),
        ("6.00:00:00", timedelta(days=6)),
        ("00:00:00.5", timedelta(milliseconds=500)),
        ("00:00:00.1234567", timedelta(microseconds=123456)),
    ],
)
def test_forms(text: str, expected: timedelta) -> None:
    assert parse_timespan(text) == expected


@pytest.mark.parametrize("text", ["", "5", "24:00:00", "00:60:00", "-00:01:00", "a:b:c", "1.2"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_timespan(text)
