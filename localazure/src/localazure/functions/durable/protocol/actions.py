"""From the actions of an orchestrator, which a worker has run, to the effects of its episode."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import durabletask.internal.orchestrator_service_pb2 as pb

from localazure.functions.durable.engine import episode, history
from localazure.functions.durable.engine.episode import Effects
from localazure.functions.durable.engine.history import Event, EventType
from localazure.functions.durable.engine.instance import Execution, Status
from localazure.functions.durable.protocol import history_messages
from localazure.functions.durable.protocol.history_messages import from_fields, status_of, value

_STEPS: Final = {
    "scheduleTask": EventType.TASK_SCHEDULED,
    "createSubOrchestration": EventType.SUB_ORCHESTRATION_INSTANCE_CREATED,
    "createTimer": EventType.TIMER_CREATED,
    "terminateOrchestration": EventType.EXECUTION_TERMINATED,
    "entityOperationSignaled": EventType.ENTITY_OPERATION_SIGNALED,
    "entityOperationCalled": EventType.ENTITY_OPERATION_CALLED,
    "entityLockRequested": EventType.ENTITY_LOCK_REQUESTED,
    "entityUnlockSent": EventType.ENTITY_UNLOCK_SENT,
}


def conclude(
    execution: Execution,
    arrived: list[Event],
    actions: Sequence[pb.OrchestratorAction],
    custom_status: str | None,
) -> Effects:
    """Compute the effects of an episode.

    Unlike an app's orchestrator, a worker gives the new actions only, and its end does not wait
    for open tasks.

    Args:
        execution: the execution that the episode ran.
        arrived: the events of this episode.
        actions: the worker's.
        custom_status: JSON text; None: unchanged.
    """
    at: str = arrived[0]["Timestamp"]
    steps: list[Event] = []
    end: pb.CompleteOrchestrationAction | None = None
    for action in actions:
        if action.HasField("completeOrchestration"):
            end = action.completeOrchestration
            continue
        step = _step(execution, at, action)
        if step is None:
            kind = action.WhichOneof("orchestratorActionType")
            return fail(
                execution,
                arrived,
                history_messages.failure_of(f"this scheduler has no action {kind}"),
                [],
            )
        steps.append(step)
    # As in the Go backend, a history does not tell of the instances that it has terminated.
    terminates = EventType.EXECUTION_TERMINATED
    events = [*arrived, *(step for step in steps if step["EventType"] != terminates)]
    if end is None:
        effects = Effects(
            events=[*events, history.orchestrator_completed(at)],
            status=Status.RUNNING,
            steps=steps,
        )
    elif end.orchestrationStatus == pb.ORCHESTRATION_STATUS_CONTINUED_AS_NEW:
        effects = _continued_as_new(execution, end, steps)
    elif end.orchestrationStatus == pb.ORCHESTRATION_STATUS_FAILED:
        effects = fail(execution, events, history_messages.failure(end.failureDetails), steps)
    else:
        effects = _ended(execution, events, end, steps)
    return replace(effects, custom_status=custom_status, leaves_activities=True)


def _step(execution: Execution, at: str, action: pb.OrchestratorAction) -> Event | None:
    kind = action.WhichOneof("orchestratorActionType")
    fields: Any = getattr(action, kind or "", None)
    if kind == "sendEvent":
        target = fields.instance.instanceId
        step = history.event_sent(at, action.id, target=target, input_json="")
        return {**step, "Name": fields.name, "Input": value(fields, "data")}
    others: dict[str, Any] = {}
    if kind == "sendEntityMessage":
        kind = fields.WhichOneof("EntityMessageType")
        fields = getattr(fields, kind)
        if kind == "entityOperationCalled":  # only this execution gets the answer
            others = {"ParentExecutionId": execution.execution_id}
    elif kind == "createSubOrchestration":
        others = {"ParentName": execution.name}
        if not fields.instanceId:
            others["InstanceId"] = f"{execution.execution_id}:{action.id:04x}"
    if kind not in _STEPS:
        return None
    return from_fields(_STEPS[kind], at, fields, action.id, **others)


def _continued_as_new(
    execution: Execution, end: pb.CompleteOrchestrationAction, steps: list[Event]
) -> Effects:
    opening: dict[str, Any] = json.loads(execution.opening_json or "{}")
    opening.pop("ScheduledStartTimestamp", None)
    opening["CarriedOver"] = [history_messages.to_event(one) for one in end.carryoverEvents]
    if end.tags:
        opening["Tags"] = dict(end.tags)
    return Effects(
        events=[],
        status=Status.RUNNING,
        steps=steps,
        next_input=value(end, "result") or "null",
        next_version=value(end, "newVersion"),
        next_opening_json=json.dumps(opening),
    )


def _ended(
    execution: Execution,
    events: list[Event],
    end: pb.CompleteOrchestrationAction,
    steps: list[Event],
) -> Effects:
    at: str = events[0]["Timestamp"]
    result, parent = value(end, "result"), execution.parent
    status = status_of(end.orchestrationStatus) or Status.COMPLETED
    return Effects(
        events=[
            *events,
            history.execution_completed(at, status=status, result=result),
            history.orchestrator_completed(at),
        ],
        status=status,
        steps=steps,
        output=result,
        parent_event=parent and history.sub_orchestration_completed(at, parent.event_id, result),
    )


def fail(
    execution: Execution, events: list[Event], failure: dict[str, Any], steps: list[Event]
) -> Effects:
    """Fail the instance. Its output, for `orchestration_state`, is the failure's JSON."""
    message = f"{failure.get('errorType', '')}: {failure.get('errorMessage', '')}"
    effects = episode.fail(execution, events, message, steps=steps)
    for event in (effects.events[-2], effects.parent_event):
        if event is not None:
            event["FailureDetails"] = failure
    text = f"Orchestrator '{execution.name}' failed: {message}"
    return replace(effects, output=json.dumps(failure), failure=text)
