"""How every window of a landing ended: which dataset was frozen, which run it started or met."""

from __future__ import annotations

from collections.abc import Iterator

from handlers import records
from handlers.clients import Clients
from orchestrations.contracts import Done, RecordWindow


def _folder(pipeline: str) -> str:
    return f"windows/{pipeline}/"


def record_window(clients: Clients, request: RecordWindow) -> Done:
    """Keep how a window ended. The same window gives the same record, however often it is told."""
    # The time first: names sort by it.
    name = f"{request.dataset.frozen_at.isoformat(timespec='milliseconds')}_{request.window}.json"
    records.replace(clients.records, _folder(request.result.pipeline) + name, request.to_dict())
    return Done()


def last_window(clients: Clients, pipeline: str) -> RecordWindow | None:
    """The window that was frozen last, if there was any."""
    name = max(clients.records.list_blob_names(name_starts_with=_folder(pipeline)), default=None)
    document = records.read(clients.records, name) if name is not None else None
    return RecordWindow.from_dict(document) if document is not None else None


def list_windows(clients: Clients, pipeline: str) -> Iterator[RecordWindow]:
    """All windows, in the order in which they were frozen."""
    for document in records.read_all(clients.records, _folder(pipeline)):
        yield RecordWindow.from_dict(document)
