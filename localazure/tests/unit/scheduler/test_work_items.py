"""What a worker of the protocol gets of a work item, and which it gets."""

from __future__ import annotations

import asyncio

import pytest
from durabletask.internal import orchestrator_service_pb2 as pb

from localazure.functions.durable.runtime.payloads import PayloadTooLarge
from localazure.functions.durable.runtime.work_items import Key
from localazure.scheduler import work_items
from localazure.scheduler.work_items import (
    ACTIVITY,
    ENTITY,
    ORCHESTRATION,
    ProtocolConnection,
    ProtocolItem,
    ProtocolItems,
)


def connect(items: ProtocolItems, request: pb.GetWorkItemsRequest) -> ProtocolConnection:
    return items.connect(ProtocolConnection(request))


async def test_a_long_item_goes_to_a_worker_that_asks_for_histories() -> None:
    items = ProtocolItems()
    other = connect(items, pb.GetWorkItemsRequest())
    streaming = connect(
        items, pb.GetWorkItemsRequest(capabilities=[pb.WORKER_CAPABILITY_HISTORY_STREAMING])
    )
    past = pb.HistoryEvent()
    past.eventRaised.input.value = work_items.LONG_BYTES * "x"
    request = pb.OrchestratorRequest(
        instanceId="i", pastEvents=[past], newEvents=[pb.HistoryEvent(eventId=7)]
    )
    message = pb.WorkItem(orchestratorRequest=request)
    run = asyncio.create_task(
        items.run(ProtocolItem(key=Key(ORCHESTRATION, "one"), content=message))
    )
    await asyncio.sleep(0)
    sent = streaming.outbox.get_nowait()
    assert sent is not None
    request.requiresHistoryStreaming = True
    del request.pastEvents[:]
    assert sent.orchestratorRequest == request
    items.disconnect(streaming)
    assert other.outbox.get_nowait() is message
    assert len(message.orchestratorRequest.pastEvents) == 1
    run.cancel()


async def test_the_filters_and_limits_of_a_request() -> None:
    filters = pb.WorkItemFilters(
        orchestrations=[pb.OrchestrationFilter(name="new", versions=["2"])],
        entities=[pb.EntityFilter(name="Counter")],
    )
    worker = ProtocolConnection(
        pb.GetWorkItemsRequest(workItemFilters=filters, maxConcurrentEntityWorkItems=1)
    )
    assert worker.wants(Key(ORCHESTRATION, "new", "2"))
    assert worker.wants(Key(ENTITY, "counter"))
    assert not worker.wants(Key(ORCHESTRATION, "new", "1"))
    assert not worker.wants(Key(ACTIVITY, "run"))
    run = ProtocolItem(key=Key(ENTITY, "counter"), content=pb.WorkItem())
    worker.take("token", run)
    assert worker.has_room(ACTIVITY)
    assert not worker.has_room(ENTITY)


async def test_a_message_that_three_workers_were_lost_with_is_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(work_items, "MOST_BYTES", 1)
    items = ProtocolItems()
    content = pb.WorkItem(orchestratorRequest=pb.OrchestratorRequest(instanceId="long"))
    item = ProtocolItem(key=Key(ORCHESTRATION, "long"), content=content)
    run = asyncio.create_task(items.run(item))
    for number in range(3):
        await asyncio.sleep(0)
        assert not run.done(), number
        items.disconnect(connect(items, pb.GetWorkItemsRequest()))
    with pytest.raises(PayloadTooLarge, match="3 workers in a row"):
        await run
