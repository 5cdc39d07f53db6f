"""Put messages of a newer release back on their queue, for a worker that can read them.

While a release is deployed, workers of two releases share the queues. Service Bus would deliver an
abandoned message again at once, ten times within seconds, so it is sent again with a delay.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

import azure.functions as func

from handlers.notify.dead_letter_queue import reject_message
from handlers.platform.clients import Clients
from handlers.platform.service_bus import Message, fit_message_id
from orchestrations.errors import OfAnotherRelease
from orchestrations.platform.activities import describe

logger = logging.getLogger("landfall")

# 68 minutes: longer than a deployment takes.
DELAYS_SECONDS = (60.0, 120.0, 300.0, 600.0, 1_200.0, 1_800.0)
PROPERTY = "put_back"
_MARK = ":put-back-"


def put_back(
    clients: Clients,
    queue: str,
    message: func.ServiceBusMessage,
    error: OfAnotherRelease,
    *,
    now: datetime,
) -> None:
    """Send a message again, later; after the last of `DELAYS_SECONDS`, dead-letter it.

    The caller then completes the message. If the process dies before, it is delivered and put back
    again under the same id.

    Raises:
        azure.servicebus.exceptions.ServiceBusError: not sent; the message is delivered again.
    """
    # Older versions of the extension have the first, newer ones the second, the other is None.
    found: list[dict[str, Any] | None] = [message.user_properties, message.application_properties]
    properties = {name: value for each in found for name, value in (each or {}).items()}
    times = int(properties.get(PROPERTY, 0))
    if times >= len(DELAYS_SECONDS):
        logger.warning("message rejected: %s", error)
        reject_message(clients, message.get_body(), describe(error))
        return
    logger.info("put back on queue %s: %s", queue, error)
    first_id = message.message_id.partition(_MARK)[0]
    again = Message(
        message_id=fit_message_id(f"{first_id}{_MARK}{times + 1}"),
        subject=message.subject or message.label,
        body=message.get_body().decode(),
        properties={**properties, PROPERTY: times + 1},
        enqueue_at=now + timedelta(seconds=DELAYS_SECONDS[times]),
    )
    clients.message_queues.send(queue, again)
