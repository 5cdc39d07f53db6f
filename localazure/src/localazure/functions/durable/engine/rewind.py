"""Rewind: removes from the history of a failed orchestration the failures that ended it.

Failures that the orchestrator handled by taking another step are kept. Later failures are removed
with their steps, so that replay schedules these steps again; the attempts and timers of a retry
policy count as one step. A failed sub-orchestration remains an open step, and is rewound
itself; one that was purged is scheduled again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localazure.functions.durable.engine.history import STEPS, Event, EventType, ended_step

_SUCCESSES = frozenset({EventType.TASK_COMPLETED, EventType.SUB_ORCHESTRATION_INSTANCE_COMPLETED})
_FAILURES = frozenset({EventType.TASK_FAILED, EventType.SUB_ORCHESTRATION_INSTANCE_FAILED})


@dataclass(frozen=True, kw_only=True)
class Rewound:
    """A history that ends before the failure, and its steps that have not ended."""

    events: list[Event]
    open_steps: list[Event]


def rewind(events: Sequence[Event], is_purged: Callable[[str], bool] = lambda _: False) -> Rewound:
    """Undo the failure at the end of a history.

    Args:
        events: the whole history of a failed instance.
        is_purged: whether a sub-orchestration, by its instance id, was purged.
    """
    own_steps = [
        n
        for n, event in enumerate(events)
        if event["EventType"] in STEPS and "RetryOf" not in event
    ]
    last_step = max(own_steps, default=-1)
    steps = {event["EventId"]: event for event in events if event["EventType"] in STEPS}
    policies = {step["RetryOf"] for step in steps.values() if "RetryOf" in step}
    succeeded = {
        _first_attempt(steps[event["TaskScheduledId"]])
        for event in events
        if event["EventType"] in _SUCCESSES
    }
    undone: set[int] = set()
    children: list[str] = []
    for event in events[last_step + 1 :]:
        if event["EventType"] not in _FAILURES:
            continue
        step = steps[event["TaskScheduledId"]]
        first = _first_attempt(step)
        if first in succeeded:
            continue
        if (
            step["EventType"] == EventType.SUB_ORCHESTRATION_INSTANCE_CREATED
            and first not in policies
            and not is_purged(step["InstanceId"])
        ):
            children.append(step["InstanceId"])
        else:
            undone.add(first)
    gone = {
        event_id
        for event_id, step in steps.items()
        if event_id in undone or step.get("RetryOf") in undone
    }
    left = [event for event in events if not _removed(event, gone, children, steps)]
    ended = {ended_step(event) for event in left}
    return Rewound(
        events=left,
        open_steps=[
            event for event in left if event["EventType"] in STEPS and event["EventId"] not in ended
        ],
    )


def _first_attempt(step: Event) -> int:
    return step.get("RetryOf", step["EventId"])


def _removed(event: Event, gone: set[int], children: list[str], steps: dict[int, Event]) -> bool:
    kind = event["EventType"]
    if kind == EventType.EXECUTION_COMPLETED:
        return True
    if kind in STEPS:
        return event["EventId"] in gone
    ended = ended_step(event)
    return ended in gone or (
        kind in _FAILURES and steps[event["TaskScheduledId"]].get("InstanceId") in children
    )
