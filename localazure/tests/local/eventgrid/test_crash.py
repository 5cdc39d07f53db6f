"""kill -9 of Event Grid while it accepts and delivers."""

from __future__ import annotations

from typing import Any

from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import AzureError
from azure.eventgrid import EventGridEvent
from azure.eventgrid.aio import EventGridPublisherClient

from harness.part_process import PartProcess
from localazure.runtime.environment import Environment


async def test_acknowledged_events_survive_kill_9(
    environment: Environment, configure: Any, webhook: Any, receiver: Any
) -> None:
    configure(webhook("hook", "azure-ml", receiver.url), retryScheduleSeconds=[0.05])
    receiver.answers = [500] * 7
    key = AzureKeyCredential(environment.event_grid_keys("azure-ml")[0])
    acknowledged: set[str] = set()

    async def publish_until_it_dies(part: PartProcess) -> None:
        endpoint = environment.topic_endpoint("azure-ml")
        async with EventGridPublisherClient(endpoint, key) as client:
            number = 0
            while part.is_running:
                events = [EventGridEvent("/s", "T", {"n": number}, "1") for _ in range(5)]
                try:
                    await client.send(events, retry_total=0)
                except AzureError:
                    return
                acknowledged.update(str(event.id) for event in events)
                number += 1
                if number == 20:
                    part.kill()

    for _ in range(2):
        with PartProcess("eventgrid", environment.state) as part:
            await publish_until_it_dies(part)
    with PartProcess("eventgrid", environment.state):
        await receiver.wait_for(lambda: acknowledged <= {event["id"] for event in receiver.events})
    assert len(acknowledged) >= 2 * 20 * 5
    assert receiver.handshakes == 1
