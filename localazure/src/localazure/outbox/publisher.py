"""Publishes a durable outbox to an Event Grid topic: in order, at least once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, Sequence
from http import HTTPStatus
from typing import Any, Protocol

import aiohttp

from localazure.processes.background import doing

logger = logging.getLogger(__name__)

API_VERSION = "2018-01-01"
# The parts' events have about 1 KB each: far below Event Grid's 1 MB per request.
# https://learn.microsoft.com/azure/event-grid/quotas-limits
MAX_EVENTS_PER_REQUEST = 100
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0
TIMEOUT = aiohttp.ClientTimeout(total=30)
_PROBLEM_CHARACTERS = 500


class Outbox(Protocol):
    """Events that wait to be published, oldest first."""

    filled: asyncio.Event
    """Set when there may be events to publish."""

    def oldest(self, limit: int) -> list[tuple[int, dict[str, Any]]]:
        """Return the oldest events with their numbers."""
        ...

    async def published(self, numbers: Sequence[int]) -> None:
        """Forget events that Event Grid has acknowledged."""
        ...


@contextlib.asynccontextmanager
async def publishing(outbox: Outbox, endpoint: str, key: str) -> AsyncGenerator[None]:
    """Publish an outbox to a topic while the context lasts.

    Args:
        outbox: the outbox of a part.
        endpoint: the topic's URL.
        key: the topic's access key.
    """
    headers = {"aeg-sas-key": key, "Content-Type": "application/json; charset=utf-8"}
    async with (
        aiohttp.ClientSession(headers=headers, timeout=TIMEOUT) as session,
        doing("publishing events", lambda: _publish_all(outbox, session, endpoint)),
    ):
        yield


async def _publish_all(outbox: Outbox, session: aiohttp.ClientSession, endpoint: str) -> None:
    """Publish events as they are added, until cancelled."""
    pause = FIRST_PAUSE_SECONDS
    while True:
        outbox.filled.clear()
        while batch := outbox.oldest(MAX_EVENTS_PER_REQUEST):
            problem = await _publish([event for _, event in batch], session, endpoint)
            if problem is None:
                await outbox.published([number for number, _ in batch])
                pause = FIRST_PAUSE_SECONDS
            else:
                level = logging.DEBUG if pause < LONGEST_PAUSE_SECONDS else logging.WARNING
                logger.log(level, "%s; events are kept, next try in %g s", problem, pause)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(outbox.filled.wait(), LONGEST_PAUSE_SECONDS)


async def _publish(
    events: list[dict[str, Any]], session: aiohttp.ClientSession, endpoint: str
) -> str | None:
    """Send one request. Returns None, or the error's text."""
    try:
        async with session.post(
            endpoint, params={"api-version": API_VERSION}, data=json.dumps(events).encode()
        ) as response:
            if response.status == HTTPStatus.OK:
                return None
            text = (await response.text())[:_PROBLEM_CHARACTERS]
            return f"Event Grid answered {response.status}: {text}"
    except (aiohttp.ClientError, TimeoutError) as error:
        return f"Event Grid cannot be reached ({type(error).__name__}: {error})"
