"""Batches of operations of an entity: which may run, and what they change.

An orchestration's lock request goes from entity to entity in a fixed order. Each one is locked when
the request is its turn, and then runs operations of that orchestration only, until it is unlocked.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import durabletask.internal.orchestrator_service_pb2 as pb
from google.protobuf.json_format import MessageToDict

from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.history import NO_EVENT_ID, Event, EventType
from localazure.functions.durable.engine.instance import Execution
from localazure.functions.durable.protocol import history_messages
from localazure.functions.durable.runtime.worker import EntityEffects
from localazure.functions.durable.store.records import Entity, Message

_OPERATIONS: Final = (EventType.ENTITY_OPERATION_CALLED, EventType.ENTITY_OPERATION_SIGNALED)

# The SDKs' clients refuse messages over 4 MB unless they are told otherwise.
MOST_CHARACTERS: Final = 1024 * 1024

Sent = tuple[str, Event, str | None]


def next_batch(entity: Entity, messages: Sequence[Message]) -> list[Message]:
    """Return the operations that may run together, or a single lock message, or nothing."""
    batch: list[Message] = []
    left_characters = MOST_CHARACTERS
    for message in messages:
        event = message.event
        if entity.locked_by is not None and event.get("ParentInstanceId") != entity.locked_by:
            continue
        if not is_operation(message):
            return batch or [message]
        left_characters -= len(event["Input"] or "")
        if batch and left_characters < 0:
            return batch
        batch.append(message)
    return batch


def is_operation(message: Message) -> bool:
    """Whether a message is an operation, not one about locks."""
    return message.event["EventType"] in _OPERATIONS


def lock(entity: Entity, message: Message, at: datetime) -> EntityEffects:
    """Lock or unlock an entity."""
    event = message.event
    sent: list[Sent] = []
    holder = None
    if event["EventType"] == EventType.ENTITY_LOCK_REQUESTED:
        holder = event["ParentInstanceId"]
        position = (event.get("Position") or 0) + 1
        if position < len(event["LockSet"]):
            sent = [(event["LockSet"][position], {**event, "Position": position}, None)]
        else:
            granted = _event(
                EventType.ENTITY_LOCK_GRANTED, at, CriticalSectionId=event["CriticalSectionId"]
            )
            sent = [(holder, granted, None)]
    return EntityEffects(
        entity=replace(entity, locked_by=holder), consumed=[message], messages=sent
    )


def to_request(entity: Entity, batch: Sequence[Message]) -> pb.EntityBatchRequest:
    """Create the request for a worker."""
    return pb.EntityBatchRequest(
        instanceId=entity.entity_id,
        entityState=history_messages.text(entity.state_json),
        operations=[
            pb.OperationRequest(
                operation=one.event["Operation"],
                requestId=one.event["RequestId"],
                input=history_messages.text(one.event["Input"]),
            )
            for one in batch
        ],
    )


def conclude(
    entity: Entity, batch: Sequence[Message], result: pb.EntityBatchResult, at: datetime
) -> EntityEffects:
    """Compute the effects of a worker's result. Where it has no result for an operation, it failed.

    If the whole batch failed, the state is unchanged.
    """
    failure = None
    if result.HasField("failureDetails"):
        failure = history_messages.failure(result.failureDetails)
    missing = pb.OperationResult()
    results = [*result.results, *[missing] * (len(batch) - len(result.results))]
    sent = [
        _answer(operation.event, one, failure, at)
        for operation, one in zip(batch, results, strict=False)
        if operation.event["EventType"] == EventType.ENTITY_OPERATION_CALLED
    ]
    if failure is not None:
        return EntityEffects(entity=entity, consumed=batch, messages=sent)
    state = history_messages.value(result, "entityState")
    return EntityEffects(
        entity=replace(entity, state_json=state, updated_at=at),
        consumed=batch,
        messages=[*sent, *_signals(result, at)],
        started=[
            _execution(action.startNewOrchestration, at)
            for action in result.actions
            if action.HasField("startNewOrchestration")
        ],
    )


def _answer(
    call: Event, result: pb.OperationResult, failure: dict[str, Any] | None, at: datetime
) -> Sent:
    if failure is None and result.HasField("success"):
        output = history_messages.value(result.success, "result")
        event = _event(
            EventType.ENTITY_OPERATION_COMPLETED, at, RequestId=call["RequestId"], Output=output
        )
    else:
        details = failure or history_messages.failure(result.failure.failureDetails)
        event = _event(
            EventType.ENTITY_OPERATION_FAILED,
            at,
            RequestId=call["RequestId"],
            FailureDetails=details or history_messages.failure_of("the worker gave no result"),
        )
    return call["ParentInstanceId"], event, call["ParentExecutionId"]


def _signals(result: pb.EntityBatchResult, at: datetime) -> Iterator[Sent]:
    for action in result.actions:
        if action.HasField("sendSignal"):
            signal = action.sendSignal
            yield signal.instanceId, signal_event(signal, at, uuid.uuid4().hex), None


def signal_event(
    signal: pb.SendSignalAction | pb.SignalEntityRequest, at: datetime, request_id: str
) -> Event:
    """The message of a signal, of an entity or a client."""
    fields = MessageToDict(signal)
    return _event(
        EventType.ENTITY_OPERATION_SIGNALED,
        at,
        RequestId=request_id,
        Operation=signal.name,
        Input=fields.get("input"),
        ScheduledTime=fields.get("scheduledTime"),
        ParentTraceContext=fields.get("parentTraceContext"),
        TargetInstanceId=signal.instanceId,
    )


def _execution(start: pb.StartNewOrchestrationAction, at: datetime) -> Execution:
    fields = MessageToDict(start)
    opening = {
        "ScheduledStartTimestamp": fields.get("scheduledTime"),
        "ParentTraceContext": fields.get("parentTraceContext"),
    }
    return Execution(
        instance_id=start.instanceId or uuid.uuid4().hex,
        execution_id=uuid.uuid4().hex,
        name=start.name,
        version=fields.get("version"),
        input_json=fields.get("input"),
        created_at=at,
        opening_json=history.context_of(opening, *opening),
    )


def _event(kind: EventType, at: datetime, **fields: Any) -> Event:
    common = {"EventType": int(kind), "EventId": NO_EVENT_ID, "Timestamp": history.timestamp(at)}
    return {**common, **fields}
