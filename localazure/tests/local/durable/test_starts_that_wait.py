"""The public HTTP API's create-and-wait: a start that responds when the instance has ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import azure.durable_functions as df
import pytest

from harness.task_hub import DurableApp, RunningHub, running, simple_app

Context = df.DurableOrchestrationContext
# With a poll once per minute, the tests would time out.
LONG = ("3600", "60")


def make_app() -> DurableApp:
    app = simple_app()

    @app.orchestrator
    def starting_anew(context: Context) -> Any:
        rounds = int(context.get_input() or 0)
        doubled = yield context.call_activity("double", rounds)
        if rounds < 3:
            context.continue_as_new(rounds + 1)
            return None
        return doubled

    return app


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[RunningHub]:
    async with running(make_app(), tmp_path) as hub:
        yield hub


def url(hub: RunningHub, name: str, timeout: str, interval: str) -> str:
    created = json.loads(hub.extension.client_binding())["creationUrls"]
    return (
        created["createAndWaitOnNewInstancePostUri"]
        .replace("{functionName}[/{instanceId}]", name)
        .replace("{timeoutInSeconds}", timeout)
        .replace("{intervalInSeconds}", interval)
    )


@pytest.mark.parametrize(("name", "output"), [("simple", 2), ("starting_anew", 6)])
async def test_the_response_is_the_output(name: str, output: int, hub: RunningHub) -> None:
    async with hub.http.post(url(hub, name, *LONG)) as response:
        assert (response.status, await response.json()) == (200, output)


async def test_a_failure_is_described(hub: RunningHub) -> None:
    async with hub.http.post(url(hub, "failing", *LONG)) as response:
        assert response.status == 200
        assert (await response.json())["runtimeStatus"] == "Failed"


async def test_a_termination_is_the_response(hub: RunningHub) -> None:
    started = asyncio.create_task(hub.http.post(url(hub, "waiting/one", *LONG)))
    await hub.until("one", "Running", "Pending")
    await hub.client.terminate("one", "enough")
    async with await started as response:
        described = await response.json()
    assert (described["runtimeStatus"], described["output"]) == ("Terminated", "enough")


async def test_a_start_that_takes_too_long_is_answered_with_links(hub: RunningHub) -> None:
    async with hub.http.post(url(hub, "waiting/one", "0.05", "0.05")) as response:
        assert response.status == 202
        assert response.headers["Location"] == (await response.json())["statusQueryGetUri"]
    await hub.client.raise_event("one", "go", "now")
    await hub.until("one", "Completed")


@pytest.mark.parametrize(
    ("patience", "interval"), [("1", "2"), ("soon", "1"), ("inf", "1"), ("nan", "nan")]
)
async def test_times_that_make_no_sense_are_refused(
    patience: str, interval: str, hub: RunningHub
) -> None:
    async with hub.http.post(url(hub, "waiting", patience, interval)) as response:
        assert response.status == 400
    assert await hub.client.get_status_all() == []
