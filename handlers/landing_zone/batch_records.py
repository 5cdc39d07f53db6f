"""How every window of a landing ended: which dataset was frozen, which run it started or met."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from handlers.configuration import record_store
from handlers.configuration.clients import Clients
from handlers.durable.activity_adapter import activity
from orchestrations.contracts.base import Done
from orchestrations.contracts.landing import RecordWindow


def _folder(pipeline: str) -> str:
    return f"windows/{pipeline}/"


@activity
def record_window(clients: Clients, request: RecordWindow) -> Done:
    """Keep how a window ended. The same window gives the same record, however often it is told."""
    # The time first, always in UTC: names sort by it.
    frozen = request.dataset.frozen_at.astimezone(UTC).isoformat(timespec="milliseconds")
    name = f"{frozen}_{request.window}.json"
    record_store.replace(
        clients.records, _folder(request.result.pipeline) + name, request.to_dict()
    )
    return Done()


def last_window(clients: Clients, pipeline: str) -> RecordWindow | None:
    """The window that was frozen last, if there was any."""
    names = list_windows(clients, pipeline)
    return read_window(clients, names[-1]) if names else None


def list_windows(clients: Clients, pipeline: str) -> Sequence[str]:
    """The names of all windows' record_store, in the order in which they were frozen."""
    return sorted(clients.records.list_blob_names(name_starts_with=_folder(pipeline)))


def read_window(clients: Clients, name: str) -> RecordWindow:
    """The record of that name."""
    document = record_store.read(clients.records, name)
    assert document is not None, f"windows are never deleted, but {name} was"
    return RecordWindow.from_dict(document)


def frozen_at(name: str) -> datetime:
    """When the window of that name was frozen, rounded down to milliseconds."""
    return datetime.fromisoformat(name.rpartition("/")[2].partition("_")[0])
