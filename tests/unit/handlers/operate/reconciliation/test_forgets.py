from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from handlers.landing.forgetting import keep_request
from handlers.operate.reconciliation.forgets import check_forgets
from handlers.operate.reconciliation.rounds import Round
from orchestrations.contracts.forgetting import ForgetBlobs, ForgetRequest
from tests.fakes.azure_ml import World
from tests.fakes.durable_client import TaskHub

NOW = datetime(2026, 11, 29, tzinfo=UTC)


def asked(world: World, at: datetime, *, done: bool = False) -> str:
    request = ForgetRequest(
        id=f"forget-{at:%Y%m%dT%H%M%S}-1f0c2a4b",
        at=at,
        by="ada",
        reason="a person asks for it",
        blobs={"digits": ["digits/1.png"]},
        asked_blobs=1,
        done_at=NOW if done else None,
    )
    keep_request(world.clients, request)
    return request.id


async def check(world: World, hub: TaskHub) -> Round:
    current = Round(world.clients, hub, NOW, lambda: 0.0, 1.0)  # pyright: ignore[reportArgumentType] - the test's own client
    await check_forgets(current)
    return current


async def test_a_recent_one_without_an_instance_is_started(world: World) -> None:
    hub = TaskHub()
    request = asked(world, NOW - timedelta(days=29))
    asked(world, NOW - timedelta(days=31))
    asked(world, NOW - timedelta(days=1), done=True)
    assert (await check(world, hub)).summary.forgets_continued == [request]
    assert list(hub.documents) == [request]
    assert hub.documents[request]["input"] == ForgetBlobs(request=request).to_dict()
    assert (await check(world, hub)).summary.forgets_continued == []


@pytest.mark.parametrize("status", ["Failed", "Terminated"])
async def test_one_that_broke_is_started_again_and_a_failure_is_told(
    world: World, status: str
) -> None:
    hub = TaskHub()
    request = asked(world, NOW - timedelta(hours=1))
    hub.add(request, "forgetting", status)
    current = await check(world, hub)
    assert hub.documents[request]["runtimeStatus"] not in ("Failed", "Terminated")
    continued, failed = current.summary.forgets_continued, list(current.failed)
    request_failed = [f"request {request}"]
    expected = ([request], []) if status == "Terminated" else ([], request_failed)
    assert (continued, failed) == expected


async def test_one_under_way_is_left_alone(world: World) -> None:
    hub = TaskHub()
    hub.add(asked(world, NOW - timedelta(hours=1)), "forgetting", "Running")
    current = await check(world, hub)
    assert (current.summary.forgets_continued, current.failed) == ([], {})
