from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.test_utils import RawTestServer

from localazure.outbox.publisher import GATHERING_SECONDS, EventPublisher


class Waiting:
    """An outbox in memory."""

    def __init__(self) -> None:
        self.filled = asyncio.Event()
        self._events: dict[int, dict[str, Any]] = {}

    def add(self, *numbers: int) -> None:
        self._events.update((number, {"id": number}) for number in numbers)
        self.filled.set()

    def oldest(self, limit: int) -> list[tuple[int, dict[str, Any]]]:
        return list(self._events.items())[:limit]

    async def published(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            del self._events[number]


async def test_events_that_come_one_by_one_share_a_request() -> None:
    requests: list[list[int]] = []
    outbox = Waiting()
    slept: asyncio.Queue[float] = asyncio.Queue()
    awake = asyncio.Semaphore(0)

    async def receive(request: web.BaseRequest) -> web.Response:
        requests.append([event["id"] for event in await request.json()])
        return web.Response()

    async def sleep(seconds: float) -> None:
        slept.put_nowait(seconds)
        await awake.acquire()

    async with RawTestServer(receive) as server, aiohttp.ClientSession() as session:
        publisher = EventPublisher(outbox, session, str(server.make_url("/")), "key", sleep)
        publishing = asyncio.create_task(publisher.run())
        outbox.add(1)
        assert await slept.get() == GATHERING_SECONDS
        outbox.add(2)
        outbox.add(3)
        awake.release()
        await slept.get()
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
    assert requests == [[1], [2, 3]]
