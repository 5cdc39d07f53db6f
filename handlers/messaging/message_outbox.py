"""Messages that Service Bus did not take in time, kept in the records container until it does.

A run is never held up by an outage of Service Bus: what a step has to send is sent within a few
seconds, or kept under its message id. Reconciliation sends what is kept. A message that was taken
although no answer came is sent twice: the queues drop the second one by its id.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote

from azure.core.exceptions import AzureError

from handlers.configuration import record_store
from handlers.configuration.clients import Clients
from handlers.messaging.service_bus import Message, message_queues

logger = logging.getLogger("landfall")

SEND_LIMIT_SECONDS = 10.0
_FOLDER = "outbox/"

Result = TypeVar("Result")


def send_or_keep(clients: Clients, queue: str, *messages: Message) -> None:
    """Send to a queue within `SEND_LIMIT_SECONDS`, or keep the messages for reconciliation.

    Raises:
        AzureError: Service Bus is out of reach, and so is the storage account of the records.
    """
    attempt_or_keep(
        clients, queue, messages, lambda: message_queues(clients).send(queue, *messages)
    )


def attempt_or_keep(
    clients: Clients, queue: str, messages: tuple[Message, ...], send: Callable[[], None]
) -> None:
    """As `send_or_keep`, with another way to send."""
    try:
        within(SEND_LIMIT_SECONDS, send)
    except (AzureError, OSError) as error:  # TimeoutError is an OSError
        logger.warning(
            "Service Bus did not take %d messages for %s, they are kept: %s",
            len(messages),
            queue,
            type(error).__name__,
        )
        for message in messages:
            record_store.create(clients.records, _record(queue, message), _document(message))


def flush(clients: Clients) -> int:
    """Send every message that is kept; returns how many were sent.

    Raises:
        AzureError: Service Bus is still out of reach. What was not sent stays.
    """
    count = 0
    for name in sorted(clients.records.list_blob_names(name_starts_with=_FOLDER)):
        document = record_store.read(clients.records, name)
        if document is None:  # sent and deleted by another round
            continue
        queue, message = name.removeprefix(_FOLDER).partition("/")[0], _parse(document)
        within(SEND_LIMIT_SECONDS, lambda q=queue, m=message: message_queues(clients).send(q, m))
        clients.records.delete_blob(name)
        count += 1
    return count


def within(seconds: float, function: Callable[[], Result]) -> Result:
    """Call a function, and stop waiting for it after some seconds.

    The SDK of Service Bus takes minutes to give up on a broker that accepts connections and says
    nothing; its own timeouts are for each of many steps. The call goes on in its thread.

    Raises:
        TimeoutError: the time is over.
    """
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - it is raised in the caller's thread
            future.set_exception(error)

    threading.Thread(target=run, name="bounded call", daemon=True).start()
    return future.result(seconds)


def _record(queue: str, message: Message) -> str:
    return f"{_FOLDER}{queue}/{quote(message.message_id, safe='')}.json"


def _document(message: Message) -> dict[str, Any]:
    return {
        "message_id": message.message_id,
        "body": message.body,
        "subject": message.subject,
        "properties": dict(message.properties),
        "enqueue_at": None if message.enqueue_at is None else message.enqueue_at.isoformat(),
    }


def _parse(document: dict[str, Any]) -> Message:
    enqueue_at = document["enqueue_at"]
    return Message(
        message_id=document["message_id"],
        body=document["body"],
        subject=document["subject"],
        properties=document["properties"],
        enqueue_at=None if enqueue_at is None else datetime.fromisoformat(enqueue_at),
    )
