"""Which worker gets a work item."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from durabletask.internal import orchestrator_service_pb2 as pb

from localazure.scheduler import work_items
from localazure.scheduler.work_items import (
    ACTIVITY,
    ENTITY,
    ORCHESTRATION,
    ConnectedWorker,
    Key,
    WorkItems,
)

RUN = Key(ACTIVITY, "run")


def begin(items: WorkItems, key: Key = RUN) -> asyncio.Task[Any]:
    return asyncio.create_task(items.run(key, pb.WorkItem()))


def tokens(worker: ConnectedWorker) -> list[str]:
    return list(worker.items)


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def request(**filters: Any) -> pb.GetWorkItemsRequest:
    return pb.GetWorkItemsRequest(workItemFilters=pb.WorkItemFilters(**filters))


async def test_a_limit_is_kept_and_the_least_loaded_worker_is_next() -> None:
    items = WorkItems()
    limited = items.connect(pb.GetWorkItemsRequest(maxConcurrentActivityWorkItems=1))
    other = items.connect(pb.GetWorkItemsRequest(maxConcurrentActivityWorkItems=2))
    runs = [begin(items) for _ in range(4)]
    await turn()
    assert (len(limited.items), len(other.items)) == (1, 2)
    items.complete(tokens(limited)[0], "x")
    await turn()
    assert len(limited.items) == 1  # the fourth
    for worker in (limited, other):
        for token in tokens(worker):
            items.complete(token, "x")
    assert await asyncio.gather(*runs) == [["x"]] * 4


async def test_a_long_item_goes_to_a_worker_that_asks_for_histories() -> None:
    items = WorkItems()
    other = items.connect(pb.GetWorkItemsRequest())
    streaming = items.connect(
        pb.GetWorkItemsRequest(capabilities=[pb.WORKER_CAPABILITY_HISTORY_STREAMING])
    )
    past = pb.HistoryEvent()
    past.eventRaised.input.value = work_items.LONG_BYTES * "x"
    request = pb.OrchestratorRequest(
        instanceId="i", pastEvents=[past], newEvents=[pb.HistoryEvent(eventId=7)]
    )
    message = pb.WorkItem(orchestratorRequest=request)
    run = asyncio.create_task(items.run(Key(ORCHESTRATION, "one"), message))
    await turn()
    sent = streaming.outbox.get_nowait()
    assert sent is not None
    request.requiresHistoryStreaming = True
    del request.pastEvents[:]
    assert sent.orchestratorRequest == request
    items.disconnect(streaming)
    assert other.outbox.get_nowait() is message
    assert len(message.orchestratorRequest.pastEvents) == 1
    run.cancel()


async def test_a_lost_workers_item_goes_to_another_and_the_first_answer_counts() -> None:
    items = WorkItems()
    lost = items.connect(pb.GetWorkItemsRequest())
    run = begin(items)
    await turn()
    (late,) = tokens(lost)
    items.disconnect(lost)
    other = items.connect(pb.GetWorkItemsRequest())
    (token,) = tokens(other)
    assert token != late
    items.complete(late, "late", is_partial=True)
    items.complete(late, "late")
    items.complete(token, "second")
    assert await run == ["late", "late"]
    assert not other.items
    items.complete(token, "third")  # no effect


async def test_filters_by_kind_name_and_version() -> None:
    items = WorkItems()
    filtered = items.connect(
        request(
            orchestrations=[pb.OrchestrationFilter(name="new", versions=["2"])],
            entities=[pb.EntityFilter(name="Counter")],
        )
    )
    wanted = [Key(ORCHESTRATION, "new", "2"), Key(ENTITY, "counter")]
    others = [Key(ORCHESTRATION, "new", "1"), Key(ENTITY, "x"), RUN]
    runs = [begin(items, key) for key in (*wanted, *others)]
    await turn()
    assert [item.key for item in filtered.items.values()] == wanted
    rest = items.connect(pb.GetWorkItemsRequest())
    assert sorted(item.key for item in rest.items.values()) == sorted(others)
    for run in runs:
        run.cancel()
    await turn()
    assert not filtered.items
    assert not rest.items


async def test_an_abandoned_item_goes_to_another_or_after_a_pause_to_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(work_items, "ABANDONED_SECONDS", 0)
    items = WorkItems()
    first = items.connect(pb.GetWorkItemsRequest())
    run = begin(items)
    await turn()
    items.abandon(tokens(first)[0])
    assert not first.items
    await turn()
    assert first.items  # nobody else is there
    other = items.connect(pb.GetWorkItemsRequest())
    items.abandon(tokens(first)[0])
    await turn()
    assert not first.items
    items.complete(tokens(other)[0], "x")
    assert await run == ["x"]
