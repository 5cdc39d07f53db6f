"""Publishes the outbox to Event Grid's topic `storage`: in order, at least once, for ever."""

from __future__ import annotations

import asyncio
import json
import logging
from http import HTTPStatus

import aiohttp

from localazure.storage.outbox import Outbox

log = logging.getLogger(__name__)

API_VERSION = "2018-01-01"
# An event is about 1 KB (a blob name has at most 1,024 characters): far below Event Grid's 1 MB.
MAX_EVENTS_PER_REQUEST = 100
RETRY_S = 0.2
MAX_RETRY_S = 5.0
TIMEOUT = aiohttp.ClientTimeout(total=30)


class Publisher:
    """One publisher of one outbox."""

    def __init__(
        self, outbox: Outbox, session: aiohttp.ClientSession, endpoint: str, key: str
    ) -> None:
        self._outbox = outbox
        self._session = session
        self._url = f"{endpoint}?api-version={API_VERSION}"
        self._headers = {
            "aeg-sas-key": key,
            "Content-Type": "application/json; charset=utf-8",
        }

    async def run(self) -> None:
        """Publish whatever waits, and wait for more, until cancelled."""
        retry_s = RETRY_S
        while True:
            await self._outbox.filled.wait()
            self._outbox.filled.clear()
            while batch := self._outbox.oldest(MAX_EVENTS_PER_REQUEST):
                problem = await self._publish(json.dumps([event for _, event in batch]).encode())
                if problem is None:
                    await self._outbox.published([sequence for sequence, _ in batch])
                    retry_s = RETRY_S
                else:
                    log.log(
                        logging.DEBUG if retry_s < MAX_RETRY_S else logging.WARNING,
                        "%s; blob events are kept and published again in %s s",
                        problem,
                        retry_s,
                    )
                    await asyncio.sleep(retry_s)
                    retry_s = min(2 * retry_s, MAX_RETRY_S)

    async def _publish(self, body: bytes) -> str | None:
        """Send one request; the problem in words, None if it was accepted."""
        try:
            async with self._session.post(
                self._url, data=body, headers=self._headers, timeout=TIMEOUT
            ) as response:
                if response.status == HTTPStatus.OK:
                    return None
                return f"Event Grid answered {response.status}: {(await response.text())[:500]}"
        except (aiohttp.ClientError, TimeoutError) as error:
            return f"Event Grid cannot be reached ({type(error).__name__}: {error})"
