"""Histories that were changed as if other code had made them: each change must be found.

The histories are Landfall's own, in both forms. As they are, they fit (tests/replay).
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from replay_guard.history import CannotCheck, EventType, parse_time, time_text
from replay_guard.outcome import DEPENDS_ON_CLOCK
from replay_guard.redaction import redact
from tests.replay.recording import STEP_EVENTS, Document
from tests.unit.replay_guard.recorded import HANDLES, as_azure_shows, closed, recordings, replayed

RECORDINGS = recordings()
UNDER_WAY = [name for name, recording in RECORDINGS.items() if closed(recording) is not None]
"""Recordings of more than one episode."""
BY_LENGTH = sorted(UNDER_WAY, key=lambda name: len(json.dumps(RECORDINGS[name])))
"""The time of a replay grows with the square of its history's length."""
LONGER = timedelta(seconds=30)
PLANTED_LIMIT = 5
on_both_versions = pytest.mark.parametrize("version", [1, 2], ids=["SDK1", "SDK2"])


@functools.cache
def as_azure_shows_it(name: str, version: int = 1) -> Document:
    shown = as_azure_shows(RECORDINGS[name], delay_ms=3, version=version)
    assert shown is not None
    return shown


def exported(shown: Document, *, with_inputs: bool = False) -> Document:
    return redact(copy.deepcopy(shown), version="1.0", with_inputs=with_inputs)


# --- as they are ---------------------------------------------------------------------------------


def forms() -> Iterator[tuple[str, bool, int]]:
    """Each history in one of four ways, and each way with histories of several orchestrators.

    After a delay the clock is unknown, which takes many replays: only the shortest third has one.
    """
    for orchestrator in HANDLES:
        names = [name for name in BY_LENGTH if name.startswith(f"{orchestrator}-")]
        for number, name in enumerate(names):
            yield name, number % 2 == 1, 3 if number < len(names) / 3 else 0


@on_both_versions
@pytest.mark.parametrize(("name", "with_inputs", "delay_ms"), list(forms()))
def test_what_azure_shows_of_it_fits(
    name: str, delay_ms: int, version: int, *, with_inputs: bool
) -> None:
    shown = as_azure_shows(RECORDINGS[name], delay_ms=delay_ms, version=version)
    assert shown is not None
    result = replayed(exported(shown, with_inputs=with_inputs), version=version)
    assert result.differences == []
    assert result.steps == sum(
        event["EventType"] in STEP_EVENTS
        for event in (closed(RECORDINGS[name]) or {})["trigger"]["history"]
    )


@pytest.mark.parametrize("name", UNDER_WAY[::4])
def test_a_backend_that_keeps_no_inputs_is_checked_without_them(name: str) -> None:
    shown = copy.deepcopy(as_azure_shows_it(name))
    for line in shown["historyEvents"][1:]:
        if line["EventType"] != "EventRaised":
            line.pop("Input", None)
    result = replayed(exported(shown))
    assert result.differences == []
    assert result.not_compared


# --- changes of the worker form ------------------------------------------------------------------


def steps(document: Document, kind: EventType | None = None) -> list[Document]:
    wanted = STEP_EVENTS if kind is None else {kind}
    return [each for each in document["trigger"]["history"] if each["EventType"] in wanted]


def rename(document: Document) -> None:
    steps(document, EventType.TASK_SCHEDULED)[-1]["Name"] += "_of_old"


def give_other_input(document: Document) -> None:
    step = steps(document, EventType.TASK_SCHEDULED)[-1]
    step["Input"] = json.dumps({"before": json.loads(step["Input"])})


def reorder(document: Document) -> None:
    first, second = two_kinds_of_call(document)
    for key in ("Name", "Input"):
        first[key], second[key] = second[key], first[key]


def two_kinds_of_call(document: Document) -> tuple[Document, Document]:
    first, *others = steps(document, EventType.TASK_SCHEDULED)
    return first, next(each for each in others if each["Name"] != first["Name"])


def move_timer(document: Document) -> None:
    step = steps(document, EventType.TIMER_CREATED)[-1]
    step["FireAt"] = time_text(parse_time(step["FireAt"]) + timedelta(microseconds=2))


def change_kind(document: Document) -> None:
    step = steps(document, EventType.TASK_SCHEDULED)[-1]
    step |= {"EventType": EventType.TIMER_CREATED, "FireAt": step["Timestamp"]}


def forget_step(document: Document) -> None:
    """The code has a call more than the history."""
    last = steps(document)[-1]
    document["trigger"]["history"] = [
        each
        for each in document["trigger"]["history"]
        if each is not last
        and last["EventId"] not in {each.get("TaskScheduledId"), each.get("TimerId")}
    ]


def know_further_step(document: Document) -> None:
    """The code has a call less than the history."""
    last = steps(document)[-1]
    events = document["trigger"]["history"]
    number = max(each["EventId"] for each in steps(document)) + 1
    events.insert(events.index(last) + 1, {**last, "EventId": number})


def change_child(document: Document, **values: str) -> None:
    steps(document, EventType.SUB_ORCHESTRATION_INSTANCE_CREATED)[-1].update(values)


def change_output(document: Document) -> None:
    document["answer"]["output"] |= {"of": "old"}


def change_status(document: Document) -> None:
    document["episodes"][0]["customStatus"] = {"of": "old"}


CHANGES: dict[str, tuple[Callable[[Document], None], str | tuple[str, ...]]] = {
    "name": (rename, "name"),
    "input": (give_other_input, "input of"),
    "order": (reorder, "name"),
    "timer": (move_timer, "time of a timer"),
    "kind": (change_kind, "kind"),
    "call more": (forget_step, ("step", "isDone", "action", "error")),
    "call less": (know_further_step, "step"),
    "version of a child": (functools.partial(change_child, Version="0.1"), "version"),
    "id of a child": (functools.partial(change_child, InstanceId="of-old"), "instance id"),
    "input of a child": (functools.partial(change_child, Input='"{}"'), "input of"),
    "output": (change_output, "output"),
    "status": (change_status, "customStatus"),
}


def some(planted: list[tuple[str, Document]]) -> list[tuple[str, Document]]:
    """Up to `PLANTED_LIMIT` of the shorter half, spread over it."""
    half = planted[: max(len(planted) // 2, PLANTED_LIMIT)]
    step = max(len(half) / PLANTED_LIMIT, 1)
    return [half[int(number * step)] for number in range(min(len(half), PLANTED_LIMIT))]


@pytest.mark.parametrize("name_of_change", CHANGES)
def test_a_change_is_found_in_several_recordings(name_of_change: str) -> None:
    change, what = CHANGES[name_of_change]
    planted: list[tuple[str, Document]] = []
    for name in BY_LENGTH:  # one episode is the open one, in which no steps are compared
        document = copy.deepcopy(RECORDINGS[name])
        # It may have no such step, or no output.
        with contextlib.suppress(IndexError, KeyError, StopIteration, ValueError):
            change(document)
            planted.append((name, document))
    assert len(planted) >= 2
    for name, document in some(planted):
        found = replayed(document).differences
        assert any(each.what.startswith(what) for each in found), (name, found)


@pytest.mark.parametrize("name", BY_LENGTH[:3])
def test_version_2_does_not_go_on_with_what_version_1_has_recorded(name: str) -> None:
    with pytest.raises(CannotCheck, match="version 2 numbers steps otherwise"):
        replayed(RECORDINGS[name], version=2)


# --- changes of the exported form ----------------------------------------------------------------


def lines(document: Document, *kinds: str) -> list[Document]:
    found = [each for each in document["historyEvents"] if each["EventType"] in kinds]
    return sorted(found, key=lambda each: each.get("ScheduledTime", each["Timestamp"]))


ENDS = ("TaskCompleted", "TaskFailed")


def exported_rename(document: Document) -> None:
    lines(document, *ENDS)[-1]["FunctionName"] += "_of_old"


def exported_input(document: Document) -> None:
    lines(document, *ENDS)[-1]["InputSha256"] = "0" * 64


def exported_timer(document: Document, later: timedelta = LONGER) -> None:
    created = lines(document, "TimerCreated")[-1]
    before = created["FireAt"]
    created["FireAt"] = time_text(parse_time(before) + later)
    for fired in lines(document, "TimerFired"):
        if fired["FireAt"] == before:
            fired["FireAt"] = created["FireAt"]


def exported_sooner_timer(document: Document) -> None:
    exported_timer(document, -LONGER)


def exported_step_less(document: Document) -> None:
    document["historyEvents"].remove(lines(document, "TaskScheduled", "TimerCreated")[-1])


def exported_step_more(document: Document) -> None:
    last = document["historyEvents"][-1]
    document["historyEvents"].append(
        {"EventType": "TaskScheduled", "Name": "more", "Timestamp": last["Timestamp"]}
    )


def exported_status(document: Document) -> None:
    document["customStatusSha256"] = "0" * 64


def exported_ending(document: Document) -> None:
    document["runtimeStatus"] = "Completed"


EXPORTED_CHANGES: dict[Callable[[Document], None], tuple[str, ...]] = {
    exported_rename: ("name",),
    exported_input: ("input of",),
    exported_timer: ("time of a timer",),
    exported_sooner_timer: ("time of a timer",),
    exported_step_less: ("step",),
    exported_step_more: ("step", "name"),  # before the end, or in the place of another step
    exported_status: ("customStatus",),
    exported_ending: ("outcome",),
}


@on_both_versions
@pytest.mark.parametrize("change", EXPORTED_CHANGES, ids=lambda change: change.__name__)
def test_a_change_is_found_in_several_exported_histories(
    change: Callable[[Document], None], version: int
) -> None:
    what, planted, found = EXPORTED_CHANGES[change], list[tuple[str, Document]](), 0
    for name in BY_LENGTH[: len(BY_LENGTH) // 2]:
        document = exported(as_azure_shows_it(name, version))
        with contextlib.suppress(IndexError):  # it has no such step
            change(document)
            planted.append((name, document))
    for name, document in some(planted):
        result = replayed(document, version=version)
        if result.differences:
            found += 1
            assert any(each.what.startswith(what) for each in result.differences), (name, result)
        else:
            # The value names the orchestrator's clock, which an exported history does not tell.
            assert what in {("customStatus",), ("input of",)}, name
            assert DEPENDS_ON_CLOCK in result.not_compared, name
    assert found >= 2
