"""Take back what was dead-lettered, after somebody mended its cause."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from handlers.configuration.clients import Clients
from handlers.messaging.dead_letter_queue import body_text, dead_letters, text_property
from handlers.messaging.retry_queue import retry_message
from handlers.messaging.service_bus import (
    NOTIFICATIONS,
    REJECTED_RUNS,
    RETRIES,
    Message,
    message_queues,
    parse_body,
)
from handlers.notifications.outbox import Delivery
from orchestrations.contracts.runs import RunRequest
from orchestrations.errors import InvalidRequest

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage

logger = logging.getLogger("landfall")

MAXIMUM = 100


def redrive(clients: Clients, run: str | None, maximum: int) -> list[str]:
    """Put what was dead-lettered back on its queue, as its next attempt.

    A run goes to `retries` and a notification's delivery to `notifications`, each with the attempt
    number after the one that failed, so that the ids of runs and messages stay unique. What nobody
    could read stays where it is, for people.

    If the process dies between the sending and the removal, the letter stays, and the next redrive
    sends a message of the same id: the queue drops it, or `start_attempt` finds the run there.

    Args:
        clients: for Service Bus.
        run: only what belongs to this run (its id as it failed); everything when None.
        maximum: how many at most.

    Returns:
        The ids of the messages sent: of a run, the id of the run that it starts.

    Raises:
        azure.servicebus.exceptions.ServiceBusError: some may have been redriven; call it again.
    """
    sent: list[str] = []
    with dead_letters(clients, REJECTED_RUNS) as letters:
        for letter in letters:
            if len(sent) == maximum:
                break
            if run is not None and text_property(letter, "run") != run:
                continue
            if letter.message_id in sent:
                continue  # what this very call sent has failed again already
            following = _following(letter)
            if following is None:
                continue
            queue, message = following
            # A letter may lie there twice, where the queue had forgotten the first one's id.
            if message.message_id not in sent:
                message_queues(clients).send(queue, message)
                sent.append(message.message_id)
            letters.take(letter)
    return sent


def _following(letter: ServiceBusReceivedMessage) -> tuple[str, Message] | None:
    """The queue to put it on, and the message of the next attempt."""
    kind = text_property(letter, "kind")
    try:
        if kind == "run":
            request = parse_body(RunRequest, body_text(letter), queue=REJECTED_RUNS)
            return RETRIES, retry_message(
                request.model_copy(update={"attempt": request.attempt + 1})
            )
        if kind == "delivery":
            delivery = parse_body(Delivery, body_text(letter), queue=REJECTED_RUNS)
            return NOTIFICATIONS, delivery.following().to_message()
    except InvalidRequest as error:
        logger.warning("%s stays dead-lettered: %s", letter.message_id, error)
    return None
