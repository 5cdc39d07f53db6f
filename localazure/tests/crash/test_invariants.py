"""The crash test detects each kind of fault in a store."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crash import invariants
from crash.invariants import UnderWay
from harness.durable_records import AT, NOW, an_execution
from localazure.functions.durable.engine import episode, history
from localazure.functions.durable.engine.history import Event
from localazure.functions.durable.engine.instance import Instance, Status
from localazure.functions.durable.store.records import Activity, EpisodeCommit
from localazure.functions.durable.store.store import Store

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


async def test_pending_work_without_an_owner_is_noticed(tmp_path: Path) -> None:
    store = Store(tmp_path / "hub.db")
    activity = Activity(
        instance_id="i", execution_id="gone", event_id=0, name="step", input_json=None
    )
    await store.create(EXECUTION)
    assert not invariants.inspect(store).faults
    await store.commit(
        EpisodeCommit(execution=EXECUTION, at=NOW, episode=0, events="", activities=[activity])
    )
    (fault,) = invariants.inspect(store).faults
    assert "belongs to no execution" in fault
    store.close()


def test_an_activity_that_begins_after_its_end_is_noticed() -> None:
    ended = invariants.labels_of_ended(EVENTS, [DONE])
    assert ended == {"i/0/0"}
    lines = ["began i/0/0", "returned i/0/0", "began other"]
    assert invariants.begun_after_their_end(lines, ended) == ["i/0/0"]
    assert invariants.begun_after_their_end(["returned i/0/0", "began other"], ended) == []


def test_wrong_and_missing_results_are_noticed() -> None:
    good = dataclasses.replace(LIVE, status=Status.COMPLETED, output="5")
    assert not invariants.wrong_results({"i": good}, {"i": ("Completed", 5)})
    assert invariants.wrong_results({"i": good}, {"i": ("Completed", 6)})
    assert invariants.wrong_results({}, {"i": ("Completed", 5)})
    assert invariants.wrong_results({"i": LIVE}, {})
