from __future__ import annotations

import io
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


LONG = "the cluster has no node of this size, and the subscription no quota for one"


def table(width: int, *, terminal: bool) -> list[str]:
    """The lines of a table with one row."""
    text = io.StringIO()
    console = Console(file=text, width=width, force_terminal=terminal, color_system=None)
    output = Output(console, as_json=False, now=lambda: NOW)
    output.table(("STATE", "RUN", "RESULT"), [("failed", "digits-0123456789abcdef-1", LONG)])
    return text.getvalue().splitlines()


def test_each_row_is_one_line_where_there_is_no_terminal() -> None:
    header, row = table(40, terminal=False)
    assert header == "STATE   RUN                        RESULT"
    assert row == f"failed  digits-0123456789abcdef-1  {LONG}"


def test_long_text_is_wrapped_beside_an_id_that_is_never_broken() -> None:
    _, *rows = table(80, terminal=True)
    assert rows[0].startswith("failed  digits-0123456789abcdef-1  the cluster has")
    assert {row[:35] for row in rows[1:]} == {" " * 35}
    assert " ".join(row[35:] for row in rows) == LONG
    assert max(map(len, rows)) <= 80


def test_long_text_stands_below_its_row_on_a_narrow_terminal() -> None:
    _, name, row, *below = table(60, terminal=True)
    assert name == "    RESULT"
    assert row == "failed  digits-0123456789abcdef-1"
    assert " ".join(each.strip() for each in below) == LONG
    assert max(map(len, below)) <= 60


def test_the_next_page_is_asked_for_by_its_first_item_alone() -> None:
    text = io.StringIO()
    output = Output(Console(file=text, width=80), as_json=False, now=lambda: NOW)
    output.further("/api/dead-letters?after=17&limit=50")
    output.further(None)
    assert text.getvalue() == "There are more: add --after 17\n"
