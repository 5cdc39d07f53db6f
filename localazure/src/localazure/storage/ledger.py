"""Records the operations that pass through the proxy, so that each gets its event."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import aiohttp

from localazure.processes.background import keep_doing
from localazure.storage.azurite_process import AzuriteProcess
from localazure.storage.blob_service import BlobService, BlobServiceError
from localazure.storage.events import blob_event
from localazure.storage.operations import Api, Operation, Properties
from localazure.storage.outbox import Intent, Outbox
from localazure.storage.reconciliation import properties_for, took_place

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
# Only lookups can take long, if Azurite does not respond.
DRAIN_TIMEOUT_SECONDS = 5.0
# Deletions of one batch that are looked up concurrently.
MAX_LOOKUPS = 16


class Ledger:
    """Turns operations into intents before they are forwarded, and into events afterwards.

    Args:
        outbox: keeps intents and events.
        blobs: looks up properties.
        azurite: the process, which tells whether it is ready.
        topic_of: returns the ARM id of an account.
        has_topic: returns whether an account emits events.
        origin: the Blob endpoint's origin, such as `http://127.0.0.1:7080`.
    """

    def __init__(
        self,
        outbox: Outbox,
        blobs: BlobService,
        azurite: AzuriteProcess,
        *,
        topic_of: Callable[[str], str],
        has_topic: Callable[[str], bool],
        origin: str,
    ) -> None:
        self._outbox = outbox
        self._blobs = blobs
        self._azurite = azurite
        self._topic_of = topic_of
        self._has_topic = has_topic
        self._origin = origin
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, operations: Sequence[Operation]) -> list[Intent]:
        """Store intents durably, before the operations are forwarded."""
        lookups = asyncio.Semaphore(MAX_LOOKUPS)

        async def before(operation: Operation) -> Properties | None:
            async with lookups:
                headers = await self._blobs.properties(operation.source or operation.path)
            return None if headers is None else Properties.from_headers(headers)

        looked_up = [each for each in operations if each.api.needs_properties_before]
        found: dict[Operation, Properties | None] = {}
        if looked_up:
            answers = await asyncio.gather(*map(before, looked_up))
            found = dict(zip(looked_up, answers, strict=True))
        return await self._outbox.intend([(each, found.get(each)) for each in operations])

    async def close(
        self, intent: Intent, request: Mapping[str, str], response: Mapping[str, str], size: int
    ) -> None:
        """Record an operation that succeeded, before the client gets the response.

        The event is committed after the response; a crash before leaves the intent. If the contents
        were not the body of this request (a block list, a copy), the properties are read from
        Azurite.
        """
        properties = intent.before
        if intent.operation.api is Api.PUT_BLOB:
            properties = Properties.of_put(request, response, size)
        if intent.operation.api is Api.SET_BLOB_TIER and properties is not None:
            if properties.tier == request["x-ms-access-tier"]:
                self.settle([(intent, None)])
                return
            properties = replace(properties, tier=request["x-ms-access-tier"])
        api = intent.operation.api
        if properties is None and api.describes_blob and not api.is_deletion:
            headers = await self._blobs.properties(intent.operation.path)
            properties = None if headers is None else Properties.from_headers(headers)
        self.settle([(intent, self.event(intent, properties, response))])

    def settle(self, outcomes: Sequence[tuple[Intent, dict[str, Any] | None]]) -> None:
        """Commit outcomes in the background, in the order of calls."""
        if outcomes:
            self._spawn("settling operations", lambda: self._outbox.settle(outcomes))

    def reconcile_later(self, intents: Sequence[Intent]) -> None:
        """Determine the outcome of operations whose response was lost, in the background."""
        if intents:
            self._spawn("reconciling operations", lambda: self._reconcile(intents))

    async def reconcile(self) -> None:
        """Determine the outcome of the intents of an earlier process."""
        await self._reconcile(self._outbox.unsettled())

    async def drain(self) -> None:
        """Wait for the background tasks. The next start continues tasks that take too long."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=DRAIN_TIMEOUT_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _reconcile(self, intents: Sequence[Intent]) -> None:
        for intent in intents:
            event = await self._until_it_answers(intent)
            await self._outbox.settle([(intent, event)])

    async def _outcome(self, intent: Intent) -> dict[str, Any] | None:
        operation = intent.operation
        headers = await self._blobs.properties(operation.path)
        if not took_place(intent, headers):
            return None
        return self.event(intent, properties_for(intent, headers), {})

    async def _until_it_answers(self, intent: Intent) -> dict[str, Any] | None:
        while True:
            await self._azurite.ready.wait()
            try:
                return await self._outcome(intent)
            except (aiohttp.ClientError, TimeoutError, BlobServiceError) as error:
                path = intent.operation.path
                logger.debug("cannot determine the outcome of %s yet: %s", path, error)
                await asyncio.sleep(RETRY_SECONDS)

    def event(
        self, intent: Intent, properties: Properties | None, response: Mapping[str, str]
    ) -> dict[str, Any] | None:
        """The event of an operation that succeeded; None for an account without a topic."""
        if not self._has_topic(intent.operation.account):
            return None
        return blob_event(
            intent.operation,
            properties,
            event_id=intent.id,
            # After a crash the request id of the lost response is unknown.
            request_id=response.get("x-ms-request-id") or str(uuid.uuid4()),
            time=datetime.now(UTC),
            topic=self._topic_of(intent.operation.account),
            origin=self._origin,
            previous_tier=intent.before and intent.before.tier,
        )

    def _spawn(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.create_task(keep_doing(what, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
