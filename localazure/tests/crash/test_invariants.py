"""The crash test detects each kind of fault in a store."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from crash import invariants
from crash.invariants import UnderWay
from harness.durable_records import AT, an_execution
from localazure.functions.durable.engine import episode, history
from localazure.functions.durable.engine.history import Event
from localazure.functions.durable.engine.instance import Instance, Status

EXECUTION = an_execution()
LIVE = dataclasses.replace(Instance.created(EXECUTION), status=Status.RUNNING, started=True)
STARTED = episode.begin(EXECUTION, AT, started=False, messages=[])
WORK = json.dumps({"label": "i/0/0", "number": 0})
ASKED = json.dumps({"op": "add", "signal": False, "id": "request"})
# A running instance with an open step of each kind.
EVENTS: list[Event] = [
    *STARTED,
    history.task_scheduled(AT, 0, name="step", input_json=WORK),
    history.timer_created(AT, 1, AT),
    history.sub_orchestration_created(
        AT, 2, name="child", version=None, instance_id="c", input_json=None
    ),
    history.event_sent(AT, 3, target="@counter@k", input_json=ASKED),
    history.orchestrator_completed(AT),
]
UNDER_WAY = UnderWay(
    inbox=[], activities={0}, timers={1}, children={2}, asked=Counter({"request": 1})
)
DONE = history.task_completed(AT, 0, "1")


def faults(
    *, instance: Instance = LIVE, more: tuple[Event, ...] = (), **under_way: Any
) -> list[str]:
    events = [*EVENTS[:-1], *more, EVENTS[-1]]
    return invariants.faults_of(instance, events, dataclasses.replace(UNDER_WAY, **under_way))


def test_a_sound_execution_has_no_faults() -> None:
    assert not faults()
    assert not faults(inbox=[DONE], activities=set())
    assert not faults(more=(DONE,), activities=set())
    assert not faults(asked=Counter(), inbox=[history.event_raised(AT, "request", "{}")])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: faults(activities=set()), "step 0 is lost"),
        (lambda: faults(timers=set()), "step 1 is lost"),
        (lambda: faults(children=set()), "step 2 is lost"),
        (lambda: faults(asked=Counter()), "call request of @counter@k is at 0 places"),
        (lambda: faults(asked=Counter({"request": 2})), "is at 2 places"),
        (lambda: faults(more=(DONE,)), "step 0 is still under way after its end"),
        (lambda: faults(more=(DONE, DONE), activities=set()), "step 0 ended 2 times"),
        (lambda: faults(more=(DONE,), inbox=[DONE], activities=set()), "step 0 ended 2 times"),
        (lambda: faults(more=(history.task_completed(AT, 9, "1"),)), "step 9, which it never took"),
        (lambda: faults(more=(history.timer_fired(AT, 0, AT),)), "step 0, which it never took"),
        (lambda: faults(activities={0, 7}), "step 7 is under way without being open"),
        (lambda: faults(more=(EVENTS[2],)), "numbered [0, 1, 2, 3], 5 in all"),
        (lambda: faults(more=(STARTED[1],)), "started 2 times"),
        (lambda: faults(more=(STARTED[0],)), "half an episode"),
        (
            lambda: faults(instance=dataclasses.replace(LIVE, status=Status.COMPLETED)),
            "completed without the end of step 0",
        ),
        (
            lambda: faults(instance=dataclasses.replace(LIVE, status=Status.TERMINATED)),
            "was terminated 0 times",
        ),
    ],
)
def test_each_fault_is_noticed(make: Callable[[], list[str]], words: str) -> None:
    assert any(words in fault for fault in make()), make()
