"""What clients ask about entities, by gRPC."""

from __future__ import annotations

import uuid
from dataclasses import replace

import durabletask.internal.orchestrator_service_pb2 as pb

from localazure.functions.durable.engine.instance import LIVE
from localazure.functions.durable.engine.instance_id import check_length
from localazure.functions.durable.protocol.calls import HasHubs, unary
from localazure.functions.durable.protocol.entity_batches import signal_event
from localazure.functions.durable.protocol.history_messages import text
from localazure.functions.durable.protocol.state_messages import entity_metadata, moment
from localazure.functions.durable.runtime.task_hub import TaskHub
from localazure.functions.durable.store.records import Entity


class EntityService(HasHubs):
    """The part of the service for clients of entities."""

    @unary
    async def SignalEntity(
        self, request: pb.SignalEntityRequest, hub: TaskHub
    ) -> pb.SignalEntityResponse:
        """Send an operation to an entity, at once or for a later time."""
        check_length(request.instanceId)
        request_id = request.requestId or uuid.uuid4().hex
        event = signal_event(request, hub.settings.clock(), request_id)
        hub.settings.payloads.check(f"the input of entity '{request.instanceId}'", event["Input"])
        await hub.send(request.instanceId, event)
        return pb.SignalEntityResponse()

    @unary
    async def GetEntity(self, request: pb.GetEntityRequest, hub: TaskHub) -> pb.GetEntityResponse:
        """The state of an entity. One without state does not exist, also if it is locked."""
        entity = hub.store.entity(request.instanceId)
        if entity is None or entity.state_json is None:
            return pb.GetEntityResponse(exists=False)
        metadata = entity_metadata(entity, _backlog(hub, entity), with_state=request.includeState)
        return pb.GetEntityResponse(exists=True, entity=metadata)

    @unary
    async def QueryEntities(
        self, request: pb.QueryEntitiesRequest, hub: TaskHub
    ) -> pb.QueryEntitiesResponse:
        """A page of the entities that meet all conditions, in the order of their ids."""
        query = request.query
        since, until = moment(query, "lastModifiedFrom"), moment(query, "lastModifiedTo")
        found = [
            entity
            for entity in hub.store.entities(query.instanceIdStartsWith.value)
            if entity.entity_id > query.continuationToken.value
            and (query.includeTransient or entity.state_json is not None)
            and (since is None or entity.updated_at >= since)
            and (until is None or entity.updated_at < until)
        ]
        page = found[: query.pageSize.value or None]
        return pb.QueryEntitiesResponse(
            entities=[
                entity_metadata(one, _backlog(hub, one), with_state=query.includeState)
                for one in page
            ],
            continuationToken=text(page[-1].entity_id if len(page) < len(found) else None),
        )

    @unary
    async def CleanEntityStorage(
        self, request: pb.CleanEntityStorageRequest, hub: TaskHub
    ) -> pb.CleanEntityStorageResponse:
        """Release the locks of orchestrations that are over. Entities without state have no row."""
        released = 0
        for entity in hub.store.entities("") if request.releaseOrphanedLocks else ():
            holder = entity.locked_by and hub.store.instance(entity.locked_by)
            if entity.locked_by is not None and (not holder or holder.status not in LIVE):
                await hub.store.put_entity(replace(entity, locked_by=None))
                hub.dispatcher.wake(entity.entity_id)
                released += 1
        return pb.CleanEntityStorageResponse(orphanedLocksReleased=released)


def _backlog(hub: TaskHub, entity: Entity) -> int:
    return len(hub.dispatcher.mail.of(entity.entity_id))
