"""Messages to Service Bus, stored in the records container until they are sent.

A run never waits for Service Bus: a step's message is stored under its id, and a thread of the
process sends it a moment later. If the process ends before, or Service Bus is unreachable, the
message stays, and reconciliation sends it. A message may be sent twice (the response was lost, or
the process died before it deleted the record); the entities detect duplicates by id.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import quote

from azure.core.exceptions import AzureError, ResourceNotFoundError
from pydantic import TypeAdapter

from handlers.platform import record_store
from handlers.platform.bulkheads import SERVICE_BUS
from handlers.platform.clients import Clients
from handlers.platform.service_bus import Message

logger = logging.getLogger("landfall")

SEND_LIMIT_SECONDS = 10.0
FAILURES_IN_A_ROW = 2
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
                SERVICE_BUS.call_within(SERVICE_BUS.limit_seconds, send)
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


@dataclass
class Flushed:
    """What became of the stored messages; the others were sent by another process."""

    sent: int = 0
    refused: dict[str, list[str]] = field(default_factory=dict[str, "list[str]"])
    """Queue or topic → its records that cannot be read, or that Service Bus refuses; the oldest
    first. They stay, and the next call tries again."""
    unreached: dict[str, str] = field(default_factory=dict[str, str])
    """Queue or topic that did not answer → the type of the last error. Its messages stay."""


def flush(clients: Clients) -> Flushed:
    """Send the stored messages, the oldest first.

    A message that cannot be sent does not keep the others from it. A queue or topic is left out
    after `FAILURES_IN_A_ROW` messages without an answer, and the rest after one more if nothing
    else was sent either: then Service Bus is unreachable.
    """
    flushed, in_a_row, silent = Flushed(), Counter[str](), 0
    stored = clients.records.list_blobs(name_starts_with=_FOLDER)
    for blob in sorted(stored, key=lambda each: (each.last_modified, each.name)):
        entity = blob.name.removeprefix(_FOLDER).partition("/")[0]
        if in_a_row[entity] >= FAILURES_IN_A_ROW:
            continue
        try:
            flushed.sent += _send_stored(clients, entity, blob.name)
        except Exception as error:  # noqa: BLE001 - the others are sent all the same
            logger.warning("outbox: %s was not sent: %s", blob.name, type(error).__name__)
            if _is_refusal(error):
                flushed.refused.setdefault(entity, []).append(blob.name)
                continue
            flushed.unreached[entity] = type(error).__name__
            in_a_row[entity] += 1
            silent += 1
            if silent > FAILURES_IN_A_ROW:
                break
        else:
            in_a_row[entity] = silent = 0
    return flushed


def _send_stored(clients: Clients, entity: str, name: str) -> int:
    document = record_store.read(clients.records, name)
    if document is None:  # another process has sent it
        return 0
    message = _MESSAGE.validate_python(document)
    clients.message_queues.send(entity, message, limit_seconds=SEND_LIMIT_SECONDS)
    _delete(clients, name)
    return 1


def _is_refusal(error: Exception) -> bool:
    """Whether an error is about this message, not about the connection or the entity."""
    from azure.servicebus.exceptions import (  # noqa: PLC0415 - as in handlers.platform.clients
        MessageSizeExceededError,
    )

    # A record that is no JSON, or no message, is a ValueError.
    return isinstance(error, ValueError | MessageSizeExceededError)


def _delete(clients: Clients, record: str) -> None:
    with contextlib.suppress(ResourceNotFoundError):  # the thread or reconciliation deleted it
        clients.records.delete_blob(record)


def _record(entity: str, message: Message) -> str:
    return f"{_FOLDER}{entity}/{quote(message.message_id, safe='')}.json"
