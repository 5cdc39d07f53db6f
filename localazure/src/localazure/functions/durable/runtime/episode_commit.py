"""Builds the transaction that makes an episode's effects durable."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import datetime

from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.episode import Effects
from localazure.functions.durable.engine.history import Event, EventType
from localazure.functions.durable.engine.instance import (
    FINISHED,
    LIVE,
    Execution,
    Instance,
    Status,
)
from localazure.functions.durable.runtime.instance_cache import CachedInstance
from localazure.functions.durable.store.records import (
    Activity,
    Child,
    EpisodeCommit,
    Message,
    Timer,
)
from localazure.functions.durable.store.store import Store


def build(
    store: Store, live: CachedInstance, consumed: list[Message], effects: Effects, now: datetime
) -> tuple[EpisodeCommit, Instance]:
    """Return the transaction, and the instance after it.

    Args:
        store: assigns sequence numbers, finds the sub-orchestrations.
        live: the instance before the episode.
        consumed: the messages that the episode consumed.
        effects: the changes made by the episode.
        now: the time of the transaction.
    """
    before = live.instance
    execution = before.execution
    finished = effects.status in FINISHED
    following = None
    if effects.next_input is not None:
        following = replace(
            execution,
            execution_id=uuid.uuid4().hex,
            input_json=effects.next_input,
            version=effects.next_version or execution.version,
            opening_json=effects.next_opening_json,
        )
    after = replace(
        before,
        status=effects.status,
        started=following is None,
        custom_status=effects.custom_status or before.custom_status,
        output=effects.output,
        last_updated_at=now,
    )
    ended = finished or following is not None
    turn = EpisodeCommit(
        execution=execution,
        at=now,
        episode=None if following else live.episodes,
        events="" if following else history.encode(effects.events),
        consumed=consumed,
        activities=[
            Activity.of(execution, step) for step in _steps(effects, EventType.TASK_SCHEDULED)
        ],
        timers=[]
        if ended
        else [Timer.of(execution, step) for step in _steps(effects, EventType.TIMER_CREATED)],
        children=_children(store, execution, effects, now),
        messages=_messages(store, execution, effects),
        instance=after if _row_differs(before, after) else None,
        ended=ended,
        leaves_activities=effects.leaves_activities,
        next_execution=following,
    )
    return turn, after


def _children(store: Store, execution: Execution, effects: Effects, now: datetime) -> list[Child]:
    children: list[Child] = []
    for step in _steps(effects, EventType.SUB_ORCHESTRATION_INSTANCE_CREATED):
        refusal = history.sub_orchestration_failed(
            history.timestamp(now),
            step["EventId"],
            reason=f"Orchestrator function '{step['Name']}' failed: the instance id "
            f"'{step['InstanceId']}' is in use by an instance that has not finished",
            details="",
        )
        child = Execution(
            instance_id=step["InstanceId"],
            execution_id=uuid.uuid4().hex,
            name=step["Name"],
            version=step["Version"],
            input_json=step["Input"],
            created_at=now,
            parent=execution.as_parent(step["EventId"]),
            opening_json=history.context_of(step, "Tags", "ParentTraceContext", "ParentName"),
        )
        message = store.message(execution.instance_id, refusal, execution.execution_id)
        children.append(Child(execution=child, refusal=message))
    return children


def _messages(store: Store, execution: Execution, effects: Effects) -> list[Message]:
    messages = [
        store.message(target, event)
        for target, event in filter(None, map(history.message_of, effects.steps))
    ]
    if effects.parent_event is not None and execution.parent is not None:
        parent = execution.parent
        messages.append(
            store.message(parent.instance_id, effects.parent_event, parent.execution_id)
        )
    if effects.status is Status.TERMINATED:
        terminated = next(
            event
            for event in effects.events
            if event["EventType"] == EventType.EXECUTION_TERMINATED
        )
        if terminated.get("Recurse", True):
            messages += [
                store.message(child.instance_id, terminated, child.execution_id)
                for child in store.children(execution.execution_id, LIVE)
            ]
    return messages


def _row_differs(before: Instance, after: Instance) -> bool:
    return (before.status, before.started, before.custom_status, before.output) != (
        after.status,
        after.started,
        after.custom_status,
        after.output,
    )


def _steps(effects: Effects, kind: EventType) -> list[Event]:
    return [step for step in effects.steps if step["EventType"] == kind]
