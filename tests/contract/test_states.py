"""The tables of states and holds in docs/operations.md are the code's."""

from __future__ import annotations

import re
from typing import get_args

from handlers.platform.settings import APP_FOLDER
from orchestrations.contracts.landing import HoldReason
from orchestrations.contracts.runs import RunState
from orchestrations.contracts.transitions import TERMINAL_RUN_STATES, TRANSITIONS
from orchestrations.landing.holding import HOLD_RULES

PAGE = (APP_FOLDER / "docs" / "operations.md").read_text("utf-8")


def section(heading: str) -> str:
    (text,) = re.findall(rf"^#+ {heading}\n(.*?)(?=^#)", PAGE, re.DOTALL | re.MULTILINE)
    return text


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_every_state_is_explained() -> None:
    explained = [name for row in rows(section("States of a run")) for name in _names(row[0])]
    assert sorted(explained) == sorted(get_args(RunState))


def test_the_table_of_transitions_is_the_codes() -> None:
    shown = {
        (source, event, target, notification[0] if notification else None)
        for row in rows(section("Transitions"))
        for source in _names(row[0])
        for event in _names(row[1])
        for target in _names(row[2])
        for notification in [_names(row[3])]
    }
    assert shown == {(t.source, t.event, t.target, t.notification) for t in TRANSITIONS}


def test_the_final_states_are_named() -> None:
    (sentence,) = re.findall(r"^The final states are (.*?)\.", PAGE, re.MULTILINE | re.DOTALL)
    assert set(_names(sentence)) == TERMINAL_RUN_STATES


def test_the_table_of_holds_is_the_codes() -> None:
    shown = [[_names(cell) for cell in row[:4]] for row in rows(section("Release a held batch"))]
    assert shown == [
        [
            [reason],
            ["batch-held"] if rule.alerts else [],
            [rule.state],
            [rule.ended_by],
        ]
        for reason, rule in HOLD_RULES.items()
    ]
    assert sorted(HOLD_RULES) == sorted(get_args(HoldReason))


def _names(text: str) -> list[str]:
    return re.findall(r"`([\w-]+)`", text)
