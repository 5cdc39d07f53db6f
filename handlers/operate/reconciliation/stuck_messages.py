"""Alert operators to messages in the outbox that Service Bus refuses, or that cannot be read."""

from __future__ import annotations

from datetime import datetime
from pathlib import PurePosixPath

from handlers.notify.ops_alerts import publish_alert, trouble
from handlers.platform import record_store
from handlers.platform.clients import Clients
from handlers.platform.message_outbox import Flushed
from orchestrations.names import alert_id

KIND = "messages-stuck"
FOLDER = "outbox-alerts/"
EXAMPLES = 3


def alert_stuck(clients: Clients, flushed: Flushed, *, now: datetime) -> None:
    """Alert once for each queue or topic, until none of its messages is stuck.

    Raises:
        azure.core.exceptions.AzureError: an alert was not sent; the next call sends it.
        Unavailable: likewise.
    """
    open_alerts = {
        PurePosixPath(name).stem
        for name in clients.records.list_blob_names(name_starts_with=FOLDER)
    }
    if not flushed.unreached:  # otherwise, not all messages were tried
        for entity in open_alerts - flushed.refused.keys():
            clients.records.delete_blob(_record(entity))
    for entity in sorted(flushed.refused.keys() - open_alerts):
        records = flushed.refused[entity]
        alert = trouble(
            KIND,
            alert_id=alert_id(KIND, entity, records[0]),
            severity="error",
            at=now,
            data={"queue": entity, "count": len(records), "records": records[:EXAMPLES]},
        )
        publish_alert(clients, alert)
        record_store.create(clients.records, _record(entity), {"at": now.isoformat()})


def _record(entity: str) -> str:
    return f"{FOLDER}{entity}.json"
