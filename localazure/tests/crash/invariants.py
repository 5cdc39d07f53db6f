"""The invariants of a task hub's store after a kill, and at the end of a round.

They read a store that no process writes. Each fault is a sentence.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.history import Event, EventType
from localazure.functions.durable.engine.instance import FINISHED, Instance, Status
from localazure.functions.durable.store.store import Store

# Events that end steps, with the kinds of steps that they can end.
_ENDS: Final = {
    EventType.TASK_COMPLETED: EventType.TASK_SCHEDULED,
    EventType.TASK_FAILED: EventType.TASK_SCHEDULED,
    EventType.SUB_ORCHESTRATION_INSTANCE_COMPLETED: EventType.SUB_ORCHESTRATION_INSTANCE_CREATED,
    EventType.SUB_ORCHESTRATION_INSTANCE_FAILED: EventType.SUB_ORCHESTRATION_INSTANCE_CREATED,
    EventType.TIMER_FIRED: EventType.TIMER_CREATED,
}


@dataclass
class Snapshot:
    """The content of a store.

    Attributes:
        faults: violations of the invariants.
        ended: labels of activities whose success is recorded; they must never begin again.
        instances: all instances by id.
        is_idle: whether no work runs and no message waits.
    """

    faults: list[str] = field(default_factory=list[str])
    ended: set[str] = field(default_factory=set[str])
    instances: dict[str, Instance] = field(default_factory=dict[str, Instance])
    is_idle: bool = False


@dataclass(frozen=True, kw_only=True)
class UnderWay:
    """The records of one execution, except for its history."""

    inbox: list[Event]
    activities: set[int]
    timers: set[int]
    children: set[int]
    """Event ids of sub-orchestrations that have not finished."""
    asked: Counter[str]
    """Ids of requests that wait for an entity."""


def inspect(store: Store) -> Snapshot:
    """Check a store whose host has died."""
    found = Snapshot()
    inbox = store.inbox()
    activities, timers = store.activities(), store.timers()
    found.is_idle = not inbox and not activities and not timers
    found.instances = {one.execution.instance_id: one for one in store.query()}
    live_children: dict[str, set[int]] = {}
    for instance in found.instances.values():
        parent = instance.execution.parent
        if parent is not None and instance.status not in FINISHED:
            live_children.setdefault(parent.execution_id, set()).add(parent.event_id)
    asked = Counter(
        _request(message.event).get("id", "") for message in inbox if message.target.startswith("@")
    )
    for instance in found.instances.values():
        execution = instance.execution
        events = history.decode(",".join(store.history(execution.execution_id)))
        under_way = UnderWay(
            inbox=[
                message.event
                for message in inbox
                if message.target == execution.instance_id
                and message.execution_id in (None, execution.execution_id)
            ],
            activities={
                one.event_id for one in activities if one.execution_id == execution.execution_id
            },
            timers={one.event_id for one in timers if one.execution_id == execution.execution_id},
            children=live_children.get(execution.execution_id, set()),
            asked=asked,
        )
        found.ended |= labels_of_ended(events, under_way.inbox)
        found.faults += [
            f"{execution.instance_id} ({execution.name}, {instance.status}): {fault}"
            for fault in faults_of(instance, events, under_way)
        ]
    current = {one.execution.execution_id for one in found.instances.values()}
    found.faults += [
        f"{kind} {one.event_id} belongs to no execution: {one}"
        for kind, work in (("activity", activities), ("timer", timers))
        for one in work
        if one.execution_id not in current
    ]
    return found


def faults_of(instance: Instance, events: list[Event], under_way: UnderWay) -> list[str]:
    """The faults of one execution: lost, duplicate or invented steps."""
    faults = [*_order_faults(instance, events)]
    steps = {event["EventId"]: event for event in events if event["EventType"] in history.STEPS}
    count = sum(event["EventType"] in history.STEPS for event in events)
    if sorted(steps) != list(range(count)):
        faults.append(f"its steps are numbered {sorted(steps)}, {count} in all")
    ends = Counter[int]()
    for event in [*events, *under_way.inbox]:
        kind, number = _ENDS.get(event["EventType"]), history.ended_step(event)
        if kind is None or number is None:
            continue
        ends[number] += 1
        if number not in steps or steps[number]["EventType"] != kind:
            faults.append(f"the end of step {number}, which it never took: {event}")
    faults += [f"step {number} ended {n} times" for number, n in ends.items() if n > 1]
    if instance.status in FINISHED:
        left = [*under_way.activities, *under_way.timers]
        if left or under_way.inbox:
            faults.append(f"it has finished, but there are still {left} and {under_way.inbox}")
        if instance.status is Status.COMPLETED:
            faults += [
                f"it completed without the end of step {number}"
                for number, step in steps.items()
                if not ends[number]
                and step["EventType"] not in (EventType.TIMER_CREATED, EventType.EVENT_SENT)
            ]
        return faults
    for number, step in steps.items():
        faults += _open_faults(number, step, ends[number], under_way)
    open_steps = {number for number in steps if not ends[number]}
    faults += [
        f"step {number} is under way without being open"
        for number in (under_way.activities | under_way.timers) - open_steps
    ]
    faults += _answer_faults(steps.values(), events, under_way)
    return faults


def _open_faults(number: int, step: Event, ends: int, under_way: UnderWay) -> list[str]:
    """Check that each open step has a pending record, and that steps that have ended have none."""
    where = {
        EventType.TASK_SCHEDULED: under_way.activities,
        EventType.SUB_ORCHESTRATION_INSTANCE_CREATED: under_way.children,
        EventType.TIMER_CREATED: under_way.timers,
    }.get(step["EventType"])
    if where is None or (number in where) == (ends == 0):
        return []
    return [f"step {number} is {'lost' if ends == 0 else 'still under way after its end'}: {step}"]


def _answer_faults(
    steps: Iterable[Event], events: list[Event], under_way: UnderWay
) -> Iterable[str]:
    """Check that each call of an entity has one record: a request, a response, or history."""
    answers = Counter(
        event["Name"]
        for event in [*events, *under_way.inbox]
        if event["EventType"] == EventType.EVENT_RAISED
    )
    for step in steps:
        if step["EventType"] != EventType.EVENT_SENT or _request(step)["signal"]:
            continue
        identifier = _request(step)["id"]
        places = answers[identifier] + under_way.asked[identifier]
        if places != 1:
            yield f"call {identifier} of {step['InstanceId']} is at {places} places"


def _order_faults(instance: Instance, events: list[Event]) -> Iterable[str]:
    if not events:
        if instance.started:
            yield "it has begun without history"
        return
    kinds = Counter(event["EventType"] for event in events)
    if kinds[EventType.EXECUTION_STARTED] != 1:
        yield f"it started {kinds[EventType.EXECUTION_STARTED]} times"
    if kinds[EventType.ORCHESTRATOR_STARTED] != kinds[EventType.ORCHESTRATOR_COMPLETED]:
        yield "it has half an episode"
    completions = kinds[EventType.EXECUTION_COMPLETED]
    if completions != (instance.status in (Status.COMPLETED, Status.FAILED)):
        yield f"it completed {completions} times"
    if kinds[EventType.EXECUTION_TERMINATED] != (instance.status is Status.TERMINATED):
        yield f"it was terminated {kinds[EventType.EXECUTION_TERMINATED]} times"


def labels_of_ended(events: Iterable[Event], inbox: Iterable[Event]) -> set[str]:
    """Return the labels of successful activities. Activities without labels write no journal."""
    scheduled = {
        event["EventId"]: event
        for event in events
        if event["EventType"] == EventType.TASK_SCHEDULED
    }
    labels = {
        _label(scheduled[event["TaskScheduledId"]])
        for event in [*events, *inbox]
        if event["EventType"] == EventType.TASK_COMPLETED
    }
    return {label for label in labels if label is not None}


def begun_after_their_end(lines: Iterable[str], ended: set[str]) -> list[str]:
    """Return which of these labels began (again) according to the journal's `lines`."""
    begun = Counter(line.removeprefix("began ") for line in lines if line.startswith("began "))
    return sorted(begun.keys() & ended)


def wrong_results(
    instances: Mapping[str, Instance], expected: Mapping[str, tuple[str, Any]]
) -> list[str]:
    """Return faults of instances that are missing or ended with an unexpected status or output."""
    faults: list[str] = []
    for instance_id, wanted in expected.items():
        instance = instances.get(instance_id)
        if instance is None:
            faults.append(f"{instance_id} is gone, though its start was answered")
            continue
        got = (str(instance.status), json.loads(instance.output or "null"))
        if got != wanted:
            faults.append(f"{instance_id} ended as {got}, not as {wanted}")
    faults += [
        f"{one.execution.instance_id} has not ended: {one.status}"
        for one in instances.values()
        if one.status not in FINISHED and one.execution.instance_id not in expected
    ]
    return faults


def _label(step: Event) -> str | None:
    work: Any = json.loads(step["Input"])
    return work.get("label") if isinstance(work, dict) else None


def _request(event: Event) -> dict[str, Any]:
    return json.loads(event["Input"])
