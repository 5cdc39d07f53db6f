"""The document of admission, `capacity/admission.json` in the records container.

Every writer reads it, changes it by a pure function, and writes it if nobody else did meanwhile (by
its ETag): docs/decisions has why it is a blob.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from handlers.configuration import record_store
from handlers.configuration.clients import Clients
from handlers.configuration.queue_files import load_queues
from orchestrations.capacity.admission import Division, divide
from orchestrations.capacity.queues import Queues
from orchestrations.contracts.capacity import Admission

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

RECORD = "capacity/admission.json"
# Usage follows from the other fields and the time: what differs only there says the same.
_DERIVED = frozenset({"at", "usage"})


def find_admission(clients: Clients, *, now: datetime) -> Admission | None:
    """The document with today's queues; None where there is no `queues.yml`."""
    queues = load_queues(clients.settings.pipelines_folder)
    return None if queues is None else read_admission(clients.records, queues, now=now)


def read_admission(records: ContainerClient, queues: Queues, *, now: datetime) -> Admission:
    """The document with today's queues; an empty one where there is none yet."""
    return _parse(record_store.read(records, RECORD), queues, now)


def change_admission(
    records: ContainerClient,
    queues: Queues,
    change: Callable[[Admission], Admission],
    *,
    now: datetime,
) -> Division:
    """Change the document, admit what can be admitted then, and write it.

    The change is pure: it is called again when another writer was faster.

    Raises:
        TransientError: others wrote it each time.
    """
    division: Division | None = None

    def write(document: Any | None) -> Any | None:
        nonlocal division
        before = _parse(document, queues, now)
        division = divide(change(before), now)
        is_same = document is not None and _decided(before) == _decided(division.document)
        return None if is_same else division.document.to_dict()

    record_store.update(records, RECORD, write)
    assert division is not None, "the document was read at least once"
    return division


def _parse(document: Any | None, queues: Queues, now: datetime) -> Admission:
    if document is None:
        return Admission(queues=queues, at=now)
    return Admission.from_dict(document).model_copy(update={"queues": queues})


def _decided(document: Admission) -> dict[str, Any]:
    return document.model_dump(exclude=set(_DERIVED))
