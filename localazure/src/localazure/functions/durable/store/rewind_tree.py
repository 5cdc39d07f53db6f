"""Rewrites the histories of an instance and its sub-orchestrations for a rewind.

An instance may fail while steps are open, for example if its code was not deterministic. These
steps were deleted with its failure, and are scheduled again.
"""

from __future__ import annotations

from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.history import Event, EventType
from localazure.functions.durable.engine.instance import LIVE, Execution, Instance, Status
from localazure.functions.durable.engine.rewind import rewind
from localazure.functions.durable.store.records import Activity, Message, Rewrite, Timer
from localazure.functions.durable.store.store import Store


def rewriting(store: Store, instance: Instance, reason: str, at: str) -> list[Rewrite]:
    """Return the rewrites of a failed instance and of the sub-orchestrations that made it fail.

    Args:
        store: has the histories and sub-orchestrations, assigns sequence numbers.
        instance: a failed instance.
        reason: the client's reason for the rewind.
        at: the current time (ISO 8601).
    """
    execution = instance.execution
    events = history.decode(",".join(store.history(execution.execution_id)))
    rewound = rewind(events, lambda child_id: store.instance(child_id) is None)
    activities: list[Activity] = []
    timers: list[Timer] = []
    answers: list[Event] = []
    others: list[Rewrite] = []
    for step in rewound.open_steps:
        match step["EventType"]:
            case EventType.TASK_SCHEDULED:
                activities.append(Activity.of(execution, step))
            case EventType.TIMER_CREATED:
                timers.append(Timer.of(execution, step))
            case EventType.SUB_ORCHESTRATION_INSTANCE_CREATED:
                child = _child(store, execution, step)
                if child is not None and child.status is Status.FAILED:
                    others += rewriting(store, child, reason, at)
                elif child is None or child.status not in LIVE:
                    answers.append(_end_of(child, step, at))
            case _:
                continue  # EventSent: the entity has the operation
    answers.append(history.generic_event(at, f"Rewind: {reason}"))
    messages: list[Message] = [
        store.message(execution.instance_id, event, execution.execution_id) for event in answers
    ]
    own = Rewrite(
        instance_id=execution.instance_id,
        events=history.encode(rewound.events),
        activities=activities,
        timers=timers,
        messages=messages,
    )
    return [own, *others]


def _child(store: Store, execution: Execution, step: Event) -> Instance | None:
    """Return a step's sub-orchestration; None if it was purged or another instance has its id."""
    child = store.instance(step["InstanceId"])
    parent = execution.as_parent(step["EventId"])
    return child if child is not None and child.execution.parent == parent else None


def _end_of(child: Instance | None, step: Event, at: str) -> Event:
    """Return the event of a sub-orchestration that ended after its parent had failed."""
    if child is not None and child.status is Status.COMPLETED:
        return history.sub_orchestration_completed(at, step["EventId"], child.output)
    state = "gone" if child is None else child.status.lower()
    return history.sub_orchestration_failed(
        at,
        step["EventId"],
        reason=f"the sub-orchestration '{step['InstanceId']}' is {state}",
        details="",
    )
