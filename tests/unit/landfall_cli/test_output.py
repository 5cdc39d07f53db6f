from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from landfall_cli.output import Output, duration, relative

NOW = datetime(2026, 11, 22, 10, 5, tzinfo=UTC)


def test_exact_times_in_a_sentence_are_followed_by_how_far_away_they_are() -> None:
    output = Output(Console(), as_json=False, now=lambda: NOW)
    assert output.sentence("from 2026-11-22 10:04:15 UTC to 2026-11-22 12:00:00 UTC") == (
        "from 2026-11-22 10:04:15 UTC (45 s ago) to 2026-11-22 12:00:00 UTC (in 1 h 55 min)"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (45, "45 s"), (200, "3 min 20 s"), (7200, "2 h"), (273_600, "3 d 4 h")],
)
def test_durations_have_their_two_largest_units(seconds: int, text: str) -> None:
    assert duration(timedelta(seconds=seconds)) == text
    assert relative(NOW - timedelta(seconds=seconds), NOW) == f"{text} ago"
