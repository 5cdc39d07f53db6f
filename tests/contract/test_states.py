"""States, outcomes and reasons: the code, its page, its document and docs/ know the same."""

from __future__ import annotations

import json
import re
from typing import Any, get_args

import pytest

from handlers.operate.api.openapi import describe_api
from handlers.platform.settings import APP_FOLDER
from landfall_cli.deploy import ENDS
from landfall_cli.output import COLOURS
from landfall_cli.runs import BAD_ENDS, GOOD_ENDS
from orchestrations.contracts.holds import HoldReason, rule_of_hold
from orchestrations.contracts.landing import BatchOutcome, LandingAlert
from orchestrations.contracts.notifications import RolloutNotificationKind
from orchestrations.contracts.outcomes import (
    BlobState,
    PipelineState,
    Shown,
    colour_of,
    rule_of_rollout,
    rule_of_run,
    rule_of_trouble,
    rule_of_verdict,
    severity_of,
)
from orchestrations.contracts.rollouts import RolloutState
from orchestrations.contracts.run_states import (
    TERMINAL_RUN_STATES,
    TRANSITIONS,
    GateVerdict,
    RunNotificationKind,
    RunState,
    notification_of,
)

SHOWN: list[tuple[Any, ...]] = [get_args(each) for each in get_args(Shown)]
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
    rules = [(reason, rule_of_hold(reason)) for reason in get_args(HoldReason)]
    assert shown == [
        [
            [reason],
            ["batch-held"] if rule.alerts else [],
            [rule.state],
            [rule.ended_by],
        ]
        for reason, rule in rules
    ]


def test_the_table_of_verdicts_is_the_codes() -> None:
    rules = [(verdict, rule_of_verdict(verdict)) for verdict in get_args(GateVerdict)]
    assert rows(section("What the gate compares")) == [
        [
            f"`{verdict}`",
            rule.sentence,
            "yes" if rule.promoted else "no",
            "yes" if rule.needs_a_person else "no",
        ]
        for verdict, rule in rules
    ]


def test_every_name_has_its_colour_on_the_page_and_the_command_line() -> None:
    (kinds,) = re.findall(
        r"^const KINDS = \{\n(.*?)^\};", page("parts.js"), re.MULTILINE | re.DOTALL
    )
    on_page = {
        name: kind
        for kind, names in re.findall(r"(\w+): \[(.*?)\]", kinds)
        for name in strings(names)
    }
    colours = {"good": "green", "bad": "red", "warn": "yellow", "busy": "blue"}
    for names in SHOWN:
        for name in names:
            colour = colour_of(name)
            assert on_page.get(name, "quiet") == colour, name
            assert COLOURS.get(name) == colours.get(colour), name


def test_the_page_and_the_command_line_know_the_ends_and_who_needs_a_person() -> None:
    runs, rollouts = page("screens/runs.js"), page("screens/rollouts.js")
    ends, needy = [set(strings(each)) for each in re.findall(r"(?:ENDS = |!)(\[.*?\])", runs)]
    assert ends == TERMINAL_RUN_STATES
    states = get_args(RunState)
    assert needy == {it for it in states if rule_of_run(it).pipeline == "needs-a-human"}
    (over,) = re.findall(r"ENDED = (\[.*?\])", page("traffic.js"))
    (promoted,) = re.findall(r"!(\[.*?\])", rollouts)
    rules = {state: rule_of_rollout(state) for state in get_args(RolloutState)}
    ends_of_rollouts = {state for state, rule in rules.items() if rule.phase == "over"}
    assert (set(strings(over)), ENDS) == (ends_of_rollouts, ends_of_rollouts)
    assert set(strings(promoted)) == {it for it, rule in rules.items() if rule.can_be_promoted}
    (order,) = re.findall(r"ORDER = (\[.*?\])", page("screens/pipelines.js"))
    assert sorted(strings(order)) == sorted(get_args(PipelineState))
    good = {it for it in TERMINAL_RUN_STATES if severity_of(notification_of(it)) == "information"}
    assert (GOOD_ENDS, GOOD_ENDS | BAD_ENDS | {"retrying"}) == (good, ends)


@pytest.mark.parametrize(
    ("names", "file", "place"),
    [
        (BlobState, "http-api.md", r"^\| state \| the blob \|\n(.*?)\n\n"),
        (BatchOutcome, "http-api.md", r"`outcome` is null until the end, then\n(.*?)\n\n"),
        (PipelineState, "http-api.md", r"^`state` is (`idle`.*?) \("),
        (RolloutState, "rollout.md", r"^\| state \| what happens \|\n(.*?)\n\n"),
    ],
)
def test_every_name_is_on_its_page(names: Any, file: str, place: str) -> None:
    text = (APP_FOLDER / "docs" / file).read_text("utf-8")
    (found,) = re.findall(place, text, re.MULTILINE | re.DOTALL)
    if found.startswith("|"):
        found = "".join(line.split("|")[1] for line in found.splitlines())
    assert set(get_args(names)) <= set(_names(found))


def test_the_severities_of_alerts_are_the_codes() -> None:
    shown = {
        (kind, row[1])
        for row in rows(section("Alerts"))
        for kind in _names(row[0].partition(" (")[0])
    }
    for kind in get_args(LandingAlert):
        assert (kind, rule_of_trouble(kind).severity) in shown
    for kind in (*get_args(RunNotificationKind), *get_args(RolloutNotificationKind)):
        assert (kind, severity_of(kind)) in shown


@pytest.mark.parametrize(
    "names", [*SHOWN, *map(get_args, (BatchOutcome, HoldReason, GateVerdict))], ids=str
)
def test_every_name_is_in_the_document_of_the_api(names: tuple[str, ...]) -> None:
    described = json.dumps(describe_api()["components"]["schemas"])
    assert json.dumps(list(names))[1:-1] in described


def page(file: str) -> str:
    return (APP_FOLDER / "page" / file).read_text("utf-8")


def strings(text: str) -> list[str]:
    return re.findall(r'"([\w-]+)"', text)


def _names(text: str) -> list[str]:
    return re.findall(r"`([\w-]+)`", text)
