"""kill -9 of Event Grid while it accepts and delivers."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import AzureError
from azure.eventgrid import EventGridEvent
from azure.eventgrid.aio import EventGridPublisherClient

from localazure.environment import Environment

ROOT = Path(__file__).parents[3]


@contextlib.asynccontextmanager
async def part_process(environment: Environment) -> AsyncGenerator[asyncio.subprocess.Process]:
    """The part as a process of its own, killed with kill -9 on leaving."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "localazure.part", "eventgrid", environment.state), cwd=ROOT
    )
    try:
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection(
                        "127.0.0.1", environment.ports.event_grid
                    )
                    writer.close()
                    await writer.wait_closed()
                    break
                await asyncio.sleep(0.02)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_acknowledged_events_survive_kill_9(
    environment: Environment, configure: Any, webhook: Any, receiver: Any
) -> None:
    configure(webhook("hook", "azure-ml", receiver.url), retryScheduleSeconds=[0.05])
    receiver.answers = [500] * 7
    key = AzureKeyCredential(environment.keys.event_grid)
    acknowledged: set[str] = set()

    async def publish_until_it_dies(process: asyncio.subprocess.Process) -> None:
        endpoint = environment.topic_endpoint("azure-ml")
        async with EventGridPublisherClient(endpoint, key) as client:
            number = 0
            while process.returncode is None:
                events = [EventGridEvent("/s", "T", {"n": number}, "1") for _ in range(5)]
                try:
                    await client.send(events, retry_total=0)
                except AzureError:
                    return
                acknowledged.update(str(event.id) for event in events)
                number += 1
                if number == 20:
                    process.kill()

    for _ in range(3):
        async with part_process(environment) as process:
            await publish_until_it_dies(process)
    async with part_process(environment):
        await receiver.wait_for(lambda: acknowledged <= {event["id"] for event in receiver.events})
    assert len(acknowledged) >= 3 * 20 * 5
    assert receiver.handshakes == 1
