"""Whether the state of the pipelines may have changed since it was last described.

Open pages ask for the state every few seconds. To describe it takes some six requests a pipeline.
To see that nothing was written since takes a listing of each folder that it is read from, and one
query of the task hub.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar
from weakref import WeakKeyDictionary

from azure.durable_functions import DurableOrchestrationClient

from handlers.platform.bulkheads import STORAGE
from handlers.platform.clients import Clients
from handlers.platform.instances import LIVE, query
from orchestrations.names import landing_instance

Document = TypeVar("Document")

FOLDERS = (
    "run-index/unfinished/",
    "run-changes/",
    "newest-events/",
    "last-batches/",
    "paused/",
    "held/",
    "released/",
    "troubles/",
    "capacity/",
)
"""The folders of the records container that the state of pipelines depends on."""
# For what is in no folder: the month of the costs, a marker without an event.
AGE_LIMIT_SECONDS = 60.0


@dataclass
class _Described:
    """The last description."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    marker: str | None = None
    document: object = None
    at: float = 0.0
    checked_at: float = float("-inf")
    """When the last check for changes began."""


_LAST: WeakKeyDictionary[Clients, _Described] = WeakKeyDictionary()


async def describe_once(
    clients: Clients,
    starter: DurableOrchestrationClient,
    pipelines: Mapping[str, object],
    describe: Callable[[], Awaitable[Document]],
    *,
    monotonic: Callable[[], float] = time.monotonic,
) -> Document:
    """The last description if nothing has changed since, otherwise a new one.

    Of several callers at once, one checks for changes and describes.
    """
    last, asked_at = _LAST.setdefault(clients, _Described()), monotonic()
    async with last.turn:
        if last.checked_at > asked_at:
            return last.document  # pyright: ignore[reportReturnType] - by the same `describe`
        checked_at = monotonic()
        # Read first: a change during the description is seen by the next caller.
        marker = await _marker(clients, starter, pipelines)
        if marker is None or marker != last.marker or monotonic() - last.at > AGE_LIMIT_SECONDS:
            last.document = await describe()
            last.marker, last.at = marker, monotonic()
        last.checked_at = checked_at
        return last.document  # pyright: ignore[reportReturnType] - by the same `describe`


async def _marker(
    clients: Clients, starter: DurableOrchestrationClient, pipelines: Mapping[str, object]
) -> str | None:
    """A hash of all that the description depends on; None if that is not known."""
    (landings, is_whole), folders = await asyncio.gather(
        query(starter, statuses=LIVE, prefix=landing_instance("")),
        asyncio.gather(*(STORAGE.ask(_written, clients, folder) for folder in FOLDERS)),
    )
    if not is_whole:
        return None
    live = sorted(f"{each.instance_id} {each.custom_status}" for each in landings)
    return hashlib.sha256(repr((sorted(pipelines), live, folders)).encode()).hexdigest()


def _written(clients: Clients, folder: str) -> list[tuple[str, str]]:
    """Name and ETag of every record in a folder."""
    blobs = clients.records.list_blobs(name_starts_with=folder)
    return [(each.name, each.etag) for each in blobs]
