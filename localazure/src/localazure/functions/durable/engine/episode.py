"""One episode of an orchestration, as a pure function.

history so far + messages that arrived + the orchestrator's answer
    -> events to append, work to hand out, and the instance's state after it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.decision import Decision
from localazure.functions.durable.engine.history import Event, EventType
from localazure.functions.durable.engine.instance import Execution, Status
from localazure.functions.durable.engine.invocation import KnownFunctions
from localazure.functions.durable.engine.replay import ReplayFailed
from localazure.functions.durable.engine.replay_cursor import ReplayCursor


@dataclass(frozen=True, kw_only=True)
class Effects:
    """The changes made by an episode, committed in one transaction.

    Attributes:
        events: appended to history; they begin with OrchestratorStarted.
        steps: the events that record new work, in order.
        status: the instance's status after the episode.
        custom_status: JSON text; None: unchanged.
        output: JSON text, if the instance has finished.
        failure: the text to log, if the instance has failed.
        next_input: JSON text; if not None, a new execution starts with it and an empty history.
        next_version: the version of the new execution; None: unchanged.
        next_opening_json: see `Execution`, for the new execution.
        parent_event: the event for the parent, if the instance has finished.
        leaves_activities: at the execution's end, its activities that nobody awaits still run.
    """

    events: list[Event]
    status: Status
    steps: Sequence[Event] = ()
    custom_status: str | None = None
    output: str | None = None
    failure: str | None = None
    next_input: str | None = None
    next_version: str | None = None
    next_opening_json: str | None = None
    parent_event: Event | None = None
    leaves_activities: bool = False


def begin(
    execution: Execution, at: str, *, started: bool, messages: Sequence[Event]
) -> list[Event]:
    """Return the first events of an episode. In the first episode they include ExecutionStarted."""
    opening = [history.orchestrator_started(at)]
    if not started:
        opening.append(
            history.execution_started(
                at,
                name=execution.name,
                version=execution.version,
                input_json=execution.input_json,
                instance_id=execution.instance_id,
                execution_id=execution.execution_id,
                parent_instance_id=execution.parent.instance_id if execution.parent else None,
            )
        )
    return [*opening, *messages]


def conclude(
    execution: Execution,
    past: Sequence[Event],
    arrived: list[Event],
    decision: Decision,
    *,
    known: KnownFunctions,
    default_version: str | None,
    cursor: ReplayCursor | None = None,
) -> Effects:
    """Compute the effects of an orchestrator's decision.

    Args:
        execution: the execution that the episode ran.
        past: the history of earlier episodes.
        arrived: the events of this episode, as returned by `begin`.
        decision: the orchestrator's decision after all these events.
        known: the functions that may be called.
        default_version: the version of sub-orchestrations that specify none.
        cursor: a replay of all of `past`, or a new one; None: a new one.
    """
    arrived[0]["Actions"] = len(decision.actions)
    if not decision.is_document:
        return _fail_as_decided(execution, arrived, decision)
    try:
        replay = (cursor or ReplayCursor()).run(
            execution, past, arrived, decision, known=known, default_version=default_version
        )
    except ReplayFailed as failure:
        return fail(execution, arrived, str(failure), custom_status=decision.custom_status)
    steps = list(replay.new.values())
    events = [*arrived, *steps]
    if replay.finished and not replay.has_open_tasks:
        if decision.error is not None:
            return _fail_as_decided(execution, events, decision, steps)
        if replay.next_input is not None:
            return Effects(
                events=[],
                steps=steps,
                status=Status.RUNNING,
                custom_status=decision.custom_status,
                next_input=replay.next_input,
            )
        if decision.is_done:
            return _complete(execution, events, decision, steps)
    events.append(history.orchestrator_completed(arrived[0]["Timestamp"]))
    return Effects(
        events=events,
        steps=steps,
        status=Status.RUNNING,
        custom_status=decision.custom_status,
    )


def _fail_as_decided(
    execution: Execution,
    events: list[Event],
    decision: Decision,
    steps: Sequence[Event] = (),
) -> Effects:
    return fail(
        execution,
        events,
        f"Orchestrator function '{execution.name}' failed: {decision.error}",
        details=decision.error_details,
        custom_status=decision.custom_status,
        steps=steps,
    )


def _complete(
    execution: Execution, events: list[Event], decision: Decision, steps: Sequence[Event]
) -> Effects:
    at: str = events[0]["Timestamp"]
    parent = execution.parent
    return Effects(
        events=[
            *events,
            history.execution_completed(at, status=Status.COMPLETED, result=decision.output),
            history.orchestrator_completed(at),
        ],
        steps=steps,
        status=Status.COMPLETED,
        custom_status=decision.custom_status,
        output=decision.output,
        parent_event=parent
        and history.sub_orchestration_completed(at, parent.event_id, decision.output),
    )


def fail(
    execution: Execution,
    events: list[Event],
    message: str,
    *,
    details: str = "",
    custom_status: str | None = None,
    steps: Sequence[Event] = (),
) -> Effects:
    """Fail the instance with `message` as its output. `events` begin with OrchestratorStarted."""
    at: str = events[0]["Timestamp"]
    return Effects(
        events=[
            *events,
            history.execution_completed(at, status=Status.FAILED, result=message),
            history.orchestrator_completed(at),
        ],
        steps=steps,
        status=Status.FAILED,
        custom_status=custom_status,
        output=json.dumps(message),
        failure=f"{message}\n{details}".rstrip(),
        parent_event=_tell_parent_of_failure(execution, at, message, details),
    )


def control(execution: Execution, at: str, *, started: bool, message: Event) -> Effects:
    """An episode without the orchestrator: `message` suspends, resumes or terminates it."""
    kind = message["EventType"]
    opening = begin(execution, at, started=started, messages=[message])
    if kind == EventType.EXECUTION_TERMINATED:
        reason: str = message["Input"]
        return Effects(
            events=[*opening, history.orchestrator_completed(at)],
            status=Status.TERMINATED,
            output=json.dumps(reason),
            parent_event=_tell_parent_of_failure(execution, at, reason, ""),
        )
    suspended = kind == EventType.EXECUTION_SUSPENDED
    return Effects(
        events=[*opening, history.orchestrator_completed(at)],
        status=Status.SUSPENDED if suspended else Status.RUNNING,
    )


def _tell_parent_of_failure(
    execution: Execution, at: str, message: str, details: str
) -> Event | None:
    parent = execution.parent
    return parent and history.sub_orchestration_failed(
        at, parent.event_id, reason=message, details=details
    )


CONTROL_EVENTS = frozenset(
    {EventType.EXECUTION_TERMINATED, EventType.EXECUTION_SUSPENDED, EventType.EXECUTION_RESUMED}
)


# A request with new messages stays below gRPC's 4 MB; one message has a payload of at most 1 MB.
_MOST_CHARACTERS: Final = 512 * 1024


def next_batch(messages: Sequence[Event], *, started: bool, suspended: bool) -> list[int]:
    """Return the indices of the waiting messages that the next episode consumes.

    A termination takes precedence over all others. Otherwise messages are consumed in order up to
    the next suspension or resumption, which has an episode of its own. A suspended instance
    consumes only these. An instance that has not started runs once before it can be suspended.
    Large messages are left for further episodes.
    """
    kinds: list[Any] = [message["EventType"] for message in messages]
    if EventType.EXECUTION_TERMINATED in kinds:
        return [kinds.index(EventType.EXECUTION_TERMINATED)]
    if suspended:
        return [n for n, kind in enumerate(kinds) if kind in CONTROL_EVENTS][:1]
    first_control = next((n for n, kind in enumerate(kinds) if kind in CONTROL_EVENTS), len(kinds))
    if first_control == 0 and kinds and started:
        return [0]
    if first_control <= 1:  # as in a chain: there is nothing to divide
        return list(range(first_control))
    left_characters = _MOST_CHARACTERS
    for n, message in enumerate(messages[:first_control]):
        left_characters -= sum(len(str(value)) for value in message.values())
        if n and left_characters < 0:
            return list(range(n))
    return list(range(first_control))
