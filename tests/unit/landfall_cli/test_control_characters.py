"""Texts of trainers, people and services are shown, and never obeyed by the terminal."""

from __future__ import annotations

import io
import json
import re
import unicodedata
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from landfall_cli.output import Output, complain, state, visible
from landfall_cli.runs import show_run

RUN: dict[str, Any] = {
    "id": "digits-aa-1",
    "state": "failed",
    "since": "2026-11-21T22:00:00+00:00",
    "error": None,
    "model": None,
    "metrics": None,
    "compute": None,
    "parameters": {},
    "data_check": None,
    "champion_check": None,
    "dataset_version": "aa",
    "blobs": 1,
    "job": "digits-aa-1",
    "job_url": None,
    "next_attempt_at": None,
    "links": dict.fromkeys(
        ("previous_attempt", "next_attempt", "redriven_from", "redriven_as", "superseded_by")
    ),
    "timeline": [],
}
CLEARS = "\x1b[2J\x1b]0;owned\x07"
MIRRORS = "\u202etxt.exe"
BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
STYLING = re.compile(r"\x1b\[[\d;]*m")
DANGEROUS = st.text(
    st.one_of(
        st.sampled_from(sorted(BIDI)),
        st.characters(categories=["Cc", "Cs", "Zl", "Zp"]),
        st.characters(),
    )
)


def obeyed(printed: str) -> list[str]:
    """The characters that a terminal would obey, without line breaks and tabs."""
    return [
        each
        for each in printed
        if (unicodedata.category(each) in {"Cc", "Cs", "Zl", "Zp"} and each not in "\n\t")
        or each in BIDI
    ]


def printed(text: str, *, terminal: bool, as_json: bool) -> str:
    """What the command line prints of a run, a table and a line with a text."""
    file = io.StringIO()
    colors = "standard" if terminal else None
    console = Console(file=file, width=90, force_terminal=terminal, color_system=colors)
    output = Output(console, as_json=as_json, now=lambda: datetime(2026, 11, 22, tzinfo=UTC))
    part = {"name": text, "lead": -0.1, "p": 0.5, "samples": 9, "outcome": "small"}
    gate = {"sentence": text, "unit": "points", "slices": [part], "more_slices": 1}
    run: dict[str, Any] = RUN | {"reason": text, "log": [text], "remedy": text, "gate": gate}
    output.show(run, lambda shown: show_run(output, shown))
    if not as_json:
        output.table(("STATE", "WHY"), [(state(text), text), (Text(text, style="red"), text)])
        output.line(Text.assemble((text, "red"), text))
        output.facts({"why": text})
    return file.getvalue()


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("terminal", [False, True])
def test_no_character_of_a_text_is_obeyed(terminal: bool, as_json: bool) -> None:  # noqa: FBT001 - parameters
    @given(DANGEROUS)
    @example(CLEARS)
    @example(MIRRORS)
    @example("\x9b2J\x7f\r\u2028\ud800")
    def check(text: str) -> None:
        shown = printed(text, terminal=terminal, as_json=as_json)
        assert obeyed(STYLING.sub("", shown) if terminal else shown) == []
        if as_json:
            assert json.loads(STYLING.sub("", shown))["reason"] == text

    check()


def test_what_was_replaced_can_be_read_and_the_rest_stays() -> None:
    assert visible(CLEARS) == r"\x1b[2J\x1b]0;owned\x07"
    assert visible(MIRRORS) == r"\u202etxt.exe"
    assert visible("\x9b1m\u2028") == r"\x9b1m\u2028"
    for text in ("日本語, naïve café", "שלום", "a\tb\nc", "👩‍💻", ""):
        assert visible(text) == text


def test_complaints_are_shown_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    complain(f"there is no run {CLEARS}{MIRRORS}")
    assert obeyed(capsys.readouterr().err) == []
