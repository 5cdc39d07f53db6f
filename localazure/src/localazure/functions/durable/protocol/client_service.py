"""What clients ask about orchestrations, by gRPC."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Collection, Iterator

import durabletask.internal.orchestrator_service_pb2 as pb
from google.protobuf.empty_pb2 import Empty
from google.protobuf.json_format import MessageToDict
from google.protobuf.wrappers_pb2 import BoolValue

from localazure import limits
from localazure.functions.durable.api.parameters import BadRequest, read_token, write_token
from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.history import Event, EventType
from localazure.functions.durable.engine.instance import FINISHED, LIVE, Execution, Instance, Status
from localazure.functions.durable.protocol import history_messages, state_messages
from localazure.functions.durable.protocol.calls import Context, HasHubs, Write, streaming, unary
from localazure.functions.durable.protocol.history_messages import text, value
from localazure.functions.durable.protocol.state_messages import moment, orchestration_state
from localazure.functions.durable.runtime.task_hub import NotFinished, TaskHub
from localazure.functions.durable.store.records import (
    InstanceExists,
    InstanceFinished,
    InstanceMissing,
    InstanceQuery,
    position,
)

_PAGE_SIZE = 100
_STARTED = frozenset(Status) - {Status.PENDING}


class ClientService(HasHubs):
    """The part of the service for clients of orchestrations.

    Attributes:
        replaceable: a new instance may replace one in these statuses, whatever its client says.
    """

    replaceable: Collection[Status] = ()

    async def Hello(self, request: Empty, context: Context) -> Empty:
        """Answer a client that looks whether the service is there."""
        del request, context
        return Empty()

    @unary
    async def StartInstance(
        self, request: pb.CreateInstanceRequest, hub: TaskHub
    ) -> pb.CreateInstanceResponse:
        """Start an orchestration. Its id must be new, or its policy lets it replace the old one."""
        reusable = state_messages.statuses(request.orchestrationIdReusePolicy.replaceableStatus)
        if LIVE.intersection(reusable) and Status.TERMINATED not in reusable:
            raise BadRequest(
                "Invalid reusable statuses: cannot exclude 'Terminated' while also allowing reuse "
                "of running instances"  # which are terminated first
            )
        old = hub.store.instance(request.instanceId)
        if old is not None:
            if old.status not in (*self.replaceable, *reusable):
                raise InstanceExists(old.status)
            if old.status not in FINISHED:
                await hub.terminate(request.instanceId, '"replaced by a new instance"')
                await hub.reached(request.instanceId)
        given = MessageToDict(request)
        opening = {
            "Tags": given.get("tags"),
            "ParentTraceContext": given.get("parentTraceContext"),
            "ScheduledStartTimestamp": given.get("scheduledStartTimestamp"),
        }
        instance_id = await hub.start(
            request.name,
            instance_id=request.instanceId or uuid.uuid4().hex,
            input_json=given.get("input"),
            version=given.get("version"),
            opening_json=history.context_of(opening, *opening),
        )
        return pb.CreateInstanceResponse(instanceId=instance_id)

    @unary
    async def GetInstance(
        self, request: pb.GetInstanceRequest, hub: TaskHub
    ) -> pb.GetInstanceResponse:
        """The state of an orchestration."""
        return _found(request, hub.store.instance(request.instanceId))

    @unary
    async def WaitForInstanceStart(
        self, request: pb.GetInstanceRequest, hub: TaskHub
    ) -> pb.GetInstanceResponse:
        """The state, once a worker has begun it. The client's deadline ends the wait."""
        return await _once_in(request, hub, _STARTED)

    @unary
    async def WaitForInstanceCompletion(
        self, request: pb.GetInstanceRequest, hub: TaskHub
    ) -> pb.GetInstanceResponse:
        """The state, once it has ended."""
        return await _once_in(request, hub, FINISHED)

    @unary
    async def RaiseEvent(
        self, request: pb.RaiseEventRequest, hub: TaskHub
    ) -> pb.RaiseEventResponse:
        """Send an event. One that has finished ignores it."""
        with contextlib.suppress(InstanceFinished):
            await hub.raise_event(request.instanceId, request.name, value(request, "input"))
        return pb.RaiseEventResponse()

    @unary
    async def TerminateInstance(
        self, request: pb.TerminateRequest, hub: TaskHub
    ) -> pb.TerminateResponse:
        """End an orchestration, and its sub-orchestrations if asked to."""
        event = history.execution_terminated(hub.settings.now(), "")
        changes = {"Input": value(request, "output"), "Recurse": request.recursive}
        with contextlib.suppress(InstanceFinished):
            await hub.send(request.instanceId, event | changes)
        return pb.TerminateResponse()

    @unary
    async def SkipGracefulOrchestrationTerminations(
        self, request: pb.SkipGracefulOrchestrationTerminationsRequest, hub: TaskHub
    ) -> pb.SkipGracefulOrchestrationTerminationsResponse:
        """End orchestrations at once; name those that have ended, lock entities or do not exist."""
        ids, most = request.instanceBatch.instanceIds, limits.DURABLE_TERMINATIONS.value
        if not 0 < len(ids) <= most:
            raise BadRequest(f"one request terminates 1 to {most} orchestrations, not {len(ids)}")
        lockers = {entity.locked_by for entity in hub.store.entities("")}
        event = history.execution_terminated(hub.settings.now(), json.dumps(request.reason.value))
        event["Recurse"] = False
        return pb.SkipGracefulOrchestrationTerminationsResponse(
            unterminatedInstanceIds=[
                one for one in ids if one in lockers or not await _terminated(hub, one, event)
            ]
        )

    @unary
    async def SuspendInstance(self, request: pb.SuspendRequest, hub: TaskHub) -> pb.SuspendResponse:
        """Suspend an orchestration; one that has finished ignores it."""
        with contextlib.suppress(InstanceFinished):
            await hub.suspend(request.instanceId, request.reason.value)
        return pb.SuspendResponse()

    @unary
    async def ResumeInstance(self, request: pb.ResumeRequest, hub: TaskHub) -> pb.ResumeResponse:
        """Resume an orchestration; one that has finished ignores it."""
        with contextlib.suppress(InstanceFinished):
            await hub.resume(request.instanceId, request.reason.value)
        return pb.ResumeResponse()

    @unary
    async def RestartInstance(
        self, request: pb.RestartInstanceRequest, hub: TaskHub
    ) -> pb.RestartInstanceResponse:
        """Start an orchestration again, under a new id or, if it has finished, its own."""
        instance, with_new_id = hub.instance(request.instanceId), request.restartWithNewInstanceId
        if instance.status not in FINISHED and not with_new_id:
            raise NotFinished(instance)
        instance_id = await hub.restart(request.instanceId, with_new_id=with_new_id)
        return pb.RestartInstanceResponse(instanceId=instance_id)

    @unary
    async def RewindInstance(
        self, request: pb.RewindInstanceRequest, hub: TaskHub
    ) -> pb.RewindInstanceResponse:
        """Bring a failed orchestration back to the state before its failure."""
        await hub.rewind(request.instanceId, request.reason.value)
        return pb.RewindInstanceResponse()

    @unary
    async def QueryInstances(
        self, request: pb.QueryInstancesRequest, hub: TaskHub
    ) -> pb.QueryInstancesResponse:
        """A page of the orchestrations that meet all conditions."""
        query = request.query
        size = query.maxInstanceCount or _PAGE_SIZE
        page = hub.store.query(
            state_messages.instance_query(query),
            after=read_token(query.continuationToken.value),
            limit=size,
        )
        return pb.QueryInstancesResponse(
            orchestrationState=[
                orchestration_state(one, with_payloads=query.fetchInputsAndOutputs) for one in page
            ],
            continuationToken=text(write_token(position(page[-1])) if len(page) == size else None),
        )

    @unary
    async def ListInstanceIds(
        self, request: pb.ListInstanceIdsRequest, hub: TaskHub
    ) -> pb.ListInstanceIdsResponse:
        """A page of the ids of orchestrations that have ended in a period."""
        size = request.pageSize or _PAGE_SIZE
        wanted = InstanceQuery(
            statuses=state_messages.statuses(request.runtimeStatus) or list(map(str, FINISHED)),
            ended_from=moment(request, "completedTimeFrom"),
            ended_to=moment(request, "completedTimeTo"),
        )
        page = hub.store.query(wanted, after=read_token(request.lastInstanceKey.value), limit=size)
        return pb.ListInstanceIdsResponse(
            instanceIds=[one.execution.instance_id for one in page],
            lastInstanceKey=text(write_token(position(page[-1])) if len(page) == size else None),
        )

    @unary
    async def PurgeInstances(
        self, request: pb.PurgeInstancesRequest, hub: TaskHub
    ) -> pb.PurgeInstancesResponse:
        """Delete orchestrations that have finished, and their sub-orchestrations if asked to."""
        if request.HasField("purgeInstanceFilter"):
            wanted = state_messages.instance_query(request.purgeInstanceFilter)
            pages = [[one.execution for one in page] for page in hub.store.pages(wanted)]
        else:
            ids = [*request.instanceBatch.instanceIds, *filter(None, [request.instanceId])]
            found = [hub.store.instance(one) for one in ids]
            pages = [[one.execution for one in found if one is not None]]
        count = 0
        for page in pages:
            tree = [*page, *(_descendants(hub, page) if request.recursive else ())]
            count += await hub.store.purge([one.instance_id for one in tree])
        return pb.PurgeInstancesResponse(
            deletedInstanceCount=count, isComplete=BoolValue(value=True)
        )

    @streaming
    async def StreamInstanceHistory(
        self, request: pb.StreamInstanceHistoryRequest, hub: TaskHub, write: Write
    ) -> None:
        """The history of an orchestration, in chunks."""
        for chunk in history_messages.in_chunks(stored_history(hub, request.instanceId)):
            await write(chunk)


def stored_history(hub: TaskHub, instance_id: str) -> Iterator[pb.HistoryEvent]:
    """The durable history of an orchestration, as Azure shows it: without ends of episodes.

    Raises InstanceMissing.
    """
    for event in hub.history(hub.instance(instance_id)):
        if event["EventType"] != EventType.ORCHESTRATOR_COMPLETED:
            yield history_messages.to_message(event)


async def _terminated(hub: TaskHub, instance_id: str, event: Event) -> bool:
    """Terminate an orchestration; False if there is none that runs."""
    with contextlib.suppress(InstanceMissing, InstanceFinished):
        hub.instance(instance_id)  # there is none if it is an entity's id
        await hub.send(instance_id, event)
        return (await hub.reached(instance_id)).status is Status.TERMINATED
    return False


async def _once_in(
    request: pb.GetInstanceRequest, hub: TaskHub, statuses: frozenset[Status]
) -> pb.GetInstanceResponse:
    try:
        return _found(request, await hub.reached(request.instanceId, statuses))
    except InstanceMissing:
        return _found(request, None)


def _found(request: pb.GetInstanceRequest, instance: Instance | None) -> pb.GetInstanceResponse:
    if instance is None:
        return pb.GetInstanceResponse(exists=False)
    state = orchestration_state(instance, with_payloads=request.getInputsAndOutputs)
    return pb.GetInstanceResponse(exists=True, orchestrationState=state)


def _descendants(hub: TaskHub, executions: list[Execution]) -> list[Execution]:
    children = [
        child for one in executions for child in hub.store.children(one.execution_id, FINISHED)
    ]
    return [*children, *_descendants(hub, children)] if children else []
