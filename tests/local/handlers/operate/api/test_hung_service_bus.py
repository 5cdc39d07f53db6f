"""The API beside a Service Bus that accepts connections and never answers."""

from __future__ import annotations

import asyncio

import pytest

from handlers.operate.api.dead_letters import list_dead_letters
from handlers.operate.api.openapi import openapi
from handlers.operate.api.requests import Answer
from handlers.platform.bulkheads import Bulkhead, Unavailable
from handlers.platform.clients import Clients
from handlers.platform.service_bus import OPS_ALERTS, Message
from tests.unit.handlers.asking import ask, check_problem

# The SDK drops the sockets of lost connections without closing them.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

LIMIT_SECONDS = 0.5
READERS = 10
"""Open pages that poll dead letters: more than asyncio's default executor has threads."""


async def test_the_api_answers_and_says_what_it_cannot_know(hung_bus: Clients) -> None:
    bus = Bulkhead("Service Bus", threads=2, limit_seconds=LIMIT_SECONDS)

    async def read() -> Answer:
        return await ask(list_dead_letters, hung_bus, service=bus)

    readers = [asyncio.create_task(read()) for _ in range(READERS)]
    await asyncio.sleep(0)
    other = await asyncio.wait_for(ask(openapi, hung_bus), 30)
    assert other.status == 200
    for answer in await asyncio.wait_for(asyncio.gather(*readers), 30):
        check_problem(answer, 503, "unavailable", "Service Bus did not answer within 0.5 s")
    # Both threads are held: nobody waits for the limit again.
    check_problem(await read(), 503, "unavailable", "2 calls")


def test_a_sender_does_not_wait_for_ever(hung_bus: Clients) -> None:
    message = Message(message_id="m", body="{}")
    with pytest.raises(Unavailable, match=r"did not answer within 0\.5 s"):
        hung_bus.message_queues.send(OPS_ALERTS, message, limit_seconds=LIMIT_SECONDS)
