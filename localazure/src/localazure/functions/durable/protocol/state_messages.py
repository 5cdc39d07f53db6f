"""Instances and entities as messages of the protocol."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import durabletask.internal.orchestrator_service_pb2 as pb
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from localazure.functions.durable.engine.instance import FINISHED, Instance, Status
from localazure.functions.durable.protocol.history_messages import (
    status_name,
    status_of,
    text,
    timestamp,
)
from localazure.functions.durable.store.records import Entity, InstanceQuery


def orchestration_state(instance: Instance, *, with_payloads: bool) -> pb.OrchestrationState:
    """The state of an instance. The output of a failed one is its failure's JSON."""
    execution = instance.execution
    opening: dict[str, Any] = json.loads(execution.opening_json or "{}")
    failed = instance.status is Status.FAILED
    ended = instance.status in FINISHED
    state = pb.OrchestrationState(
        instanceId=execution.instance_id,
        name=execution.name,
        version=text(execution.version),
        orchestrationStatus=status_name(instance.status),
        createdTimestamp=timestamp(execution.created_at),
        lastUpdatedTimestamp=timestamp(instance.last_updated_at),
        completedTimestamp=timestamp(instance.last_updated_at) if ended else None,
        input=text(execution.input_json) if with_payloads else None,
        output=text(instance.output) if with_payloads and not failed else None,
        customStatus=text(instance.custom_status),
        executionId=text(execution.execution_id),
        parentInstanceId=text(execution.parent and execution.parent.instance_id),
        tags=opening.get("Tags"),
    )
    if (start := opening.get("ScheduledStartTimestamp")) is not None:
        state.scheduledStartTimestamp.FromJsonString(start)
    if failed:
        ParseDict(json.loads(instance.output or "{}"), state.failureDetails)
    return state


def entity_metadata(entity: Entity, backlog: int, *, with_state: bool) -> pb.EntityMetadata:
    """The state of an entity, with the number of operations that wait for it."""
    return pb.EntityMetadata(
        instanceId=entity.entity_id,
        lastModifiedTime=timestamp(entity.updated_at),
        backlogQueueSize=backlog,
        lockedBy=text(entity.locked_by),
        serializedState=text(entity.state_json) if with_state else None,
    )


def instance_query(wanted: pb.InstanceQuery | pb.PurgeInstanceFilter) -> InstanceQuery:
    """The conditions of a query or a purge."""
    return InstanceQuery(
        created_from=moment(wanted, "createdTimeFrom"),
        created_to=moment(wanted, "createdTimeTo"),
        statuses=statuses(wanted.runtimeStatus),
        prefix=wanted.instanceIdPrefix.value if isinstance(wanted, pb.InstanceQuery) else "",
    )


def statuses(numbers: Iterable[int]) -> list[str]:
    """The statuses in the engine; one that no instance has here matches none."""
    return [str(status_of(number)) for number in numbers]


def moment(message: Message, field: str) -> datetime | None:
    """The time in a field, UTC; None where it has none."""
    at: Timestamp = getattr(message, field)
    return at.ToDatetime(tzinfo=UTC) if message.HasField(field) else None
