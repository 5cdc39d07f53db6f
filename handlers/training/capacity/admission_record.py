"""The admission document, `capacity/admission.json` in the records container.

Every writer reads it, applies a pure function, and writes it with optimistic concurrency by its
ETag. docs/decisions explains why it is a blob.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any

from handlers.platform import record_store
from handlers.platform.clients import Clients
from handlers.platform.configuration.pipeline_files import load_queues
from handlers.platform.message_outbox import send_in_background
from handlers.platform.service_bus import JOB_EVENTS, NODES_OFFERED, Message, fit_message_id
from orchestrations.configuration.queues import Queues
from orchestrations.contracts.capacity import Admission
from orchestrations.training.capacity.admission import Division, divide

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

RECORD = "capacity/admission.json"
# Usage follows from the other fields and the time: a difference only there needs no write.
_DERIVED = frozenset({"at", "usage"})


def find_admission(clients: Clients, *, now: datetime) -> Admission | None:
    """The document with the deployed queues; None if there is no `queues.yml`."""
    queues = load_queues(clients.settings.pipelines_folder)
    return None if queues is None else read_admission(clients.records, queues, now=now)


def read_admission(records: ContainerClient, queues: Queues, *, now: datetime) -> Admission:
    """The document with the deployed queues; an empty one if none was written yet."""
    return _parse(record_store.read(records, RECORD), queues, now)


def change_admission(
    clients: Clients,
    queues: Queues,
    change: Callable[[Admission], Admission],
    *,
    now: datetime,
    asking: str | None = None,
) -> Division:
    """Change the document, admit the runs that fit then, write it, and wake those runs.

    `change` is pure: it is called again if another writer was faster. The run `asking` learns of
    its admission from the result. If the process dies before the others are woken, they learn of it
    from reconciliation, or when they ask again.

    Raises:
        TransientError: another writer was faster in every round.
    """
    division: Division | None = None

    def write(document: Any | None) -> Any | None:
        nonlocal division
        before = _parse(document, queues, now)
        division = divide(change(before), now)
        is_same = document is not None and _decided(before) == _decided(division.document)
        return None if is_same else division.document.to_dict()

    record_store.update(clients.records, RECORD, write)
    assert division is not None, "the document was read at least once"
    offer_nodes(clients, division.admitted - {asking}, now=now)
    return division


def offer_nodes(clients: Clients, runs: Collection[str], *, now: datetime) -> None:
    """Wake runs, so that they ask for nodes now; as a message, since activities have no client."""
    for run in sorted(runs):
        event = {
            "specversion": "1.0",
            "id": f"nodes:{run}:{now.isoformat()}",
            "type": NODES_OFFERED,
            "source": "landfall",
            "subject": f"experiments/queues/runs/{run}",
            "time": now.isoformat(),
        }
        message = Message(message_id=fit_message_id(event["id"]), body=json.dumps(event))
        send_in_background(clients, JOB_EVENTS, message)


def _parse(document: Any | None, queues: Queues, now: datetime) -> Admission:
    if document is None:
        return Admission(queues=queues, at=now)
    return Admission.from_dict(document).model_copy(update={"queues": queues})


def _decided(document: Admission) -> dict[str, Any]:
    return document.model_dump(exclude=set(_DERIVED))
