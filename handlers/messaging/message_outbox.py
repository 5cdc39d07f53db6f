"""Messages to Service Bus, stored in the records container until they are sent.

A run never waits for Service Bus: a step's message is stored under its id, and a thread of the
process sends it a moment later. If the process ends before, or Service Bus is unreachable, the
message stays, and reconciliation sends it. A message may be sent twice (the response was lost, or
the process died before it deleted the record); the entities detect duplicates by id.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from urllib.parse import quote

from azure.core.exceptions import AzureError, ResourceNotFoundError
from pydantic import TypeAdapter

from handlers.configuration import record_store
from handlers.configuration.clients import Clients
from handlers.durable.bounded_call import within
from handlers.messaging.service_bus import Message

logger = logging.getLogger("landfall")

SEND_LIMIT_SECONDS = 10.0
_FOLDER = "outbox/"
_MESSAGE = TypeAdapter(Message)


def send_in_background(
    clients: Clients, entity: str, *messages: Message, send: Callable[[], None] | None = None
) -> None:
    """Store messages and send them in the background (with `send`, if given).

    Returns once they are stored. Their ids are derived, so a repeated message is sent once.

    Raises:
        AzureError: the storage account of the records is unreachable.
    """
    for message in messages:
        document = _MESSAGE.dump_python(message, mode="json")
        record_store.create(clients.records, _record(entity, message), document)

    def send_kept() -> None:
        try:
            if send is None:
                clients.message_queues.send(entity, *messages)
            else:
                send()
        except (AzureError, OSError) as error:
            logger.warning(
                "Service Bus did not take %d messages for %s, reconciliation sends them: %s",
                len(messages),
                entity,
                type(error).__name__,
            )
            return
        for message in messages:
            _delete(clients, _record(entity, message))

    if not clients.background.submit(send_kept):
        logger.warning("too many messages wait for Service Bus: reconciliation sends the others")


def flush(clients: Clients) -> int:
    """Send every stored message; return the number.

    Raises:
        AzureError: Service Bus is still unreachable. Unsent messages stay.
        TookTooLong: it did not answer within `SEND_LIMIT_SECONDS`. Unsent messages stay.
    """
    count = 0
    for name in sorted(clients.records.list_blob_names(name_starts_with=_FOLDER)):
        document = record_store.read(clients.records, name)
        if document is None:  # another process has sent it
            continue
        entity = name.removeprefix(_FOLDER).partition("/")[0]
        message = _MESSAGE.validate_python(document)
        within(SEND_LIMIT_SECONDS, lambda e=entity, m=message: clients.message_queues.send(e, m))
        _delete(clients, name)
        count += 1
    return count


def _delete(clients: Clients, record: str) -> None:
    with contextlib.suppress(ResourceNotFoundError):  # the thread or reconciliation deleted it
        clients.records.delete_blob(record)


def _record(entity: str, message: Message) -> str:
    return f"{_FOLDER}{entity}/{quote(message.message_id, safe='')}.json"
