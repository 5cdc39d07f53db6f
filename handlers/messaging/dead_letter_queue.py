"""The dead-letter queue of `rejected-runs`: runs, deliveries and messages that gave up.

Service Bus lets only a receiver dead-letter a message, with a reason and a description that its
tools show. So what is rejected is sent to the queue, with both in its application properties, and
then received from there and dead-lettered.

What if the process dies in between? The message stays on the queue, with all that is needed to
dead-letter it, and the next caller, or `sweep` (reconciliation calls it), does so. What
if it is sent again? It has a derived id, and the queue detects duplicates. What if two callers do
this at once? They may receive each other's message; as each message holds its own reason, either
caller can dead-letter it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from handlers.configuration.clients import Clients
from handlers.durable.activity_adapter import activity
from handlers.messaging.message_outbox import send_in_background
from handlers.messaging.ops_alerts import publish_alert, trouble
from handlers.messaging.service_bus import REJECTED_RUNS, Message
from orchestrations.contracts.base import Done, Failure
from orchestrations.contracts.runs import DeadLetter

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage, ServiceBusReceiver

Kind = Literal["run", "delivery", "message"]
"""A `RunRequest`, a `Delivery` of a notification, or a message that could not be parsed."""

# As the .NET SDK has it: Constants.MaxDeadLetterReasonLength.
DEAD_LETTER_TEXT_LIMIT_CHARACTERS = 4_096

# For messages that are there already: the link is open by then.
RECEIVE_WAIT_SECONDS = 1.0
REJECT_DEADLINE_SECONDS = 30.0
# Well within a lock's minute, so that no message is seen twice.
SCAN_DEADLINE_SECONDS = 30.0
SCAN_LIMIT_MESSAGES = 1_000
SCAN_BATCH_MESSAGES = 50


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """Something that gave up, and why."""

    message_id: str
    kind: Kind
    body: str
    reason: str
    description: str
    run: str | None = None

    def to_message(self) -> Message:
        """A message for `rejected-runs`."""
        properties: dict[str, str | int] = {
            "kind": self.kind,
            "reason": self.reason[:DEAD_LETTER_TEXT_LIMIT_CHARACTERS],
            "description": self.description[:DEAD_LETTER_TEXT_LIMIT_CHARACTERS],
        }
        if self.run is not None:
            properties["run"] = self.run
        return Message(
            message_id=self.message_id,
            subject=self.kind,
            body=self.body,
            properties=properties,
        )


@activity
def dead_letter(clients: Clients, request: DeadLetter) -> Done:
    """Dead-letter a run; `handlers.messaging.redrive` sends it again when its cause is removed.

    It may be repeated, and many may call it at once. It does not wait for Service Bus: the request
    is kept, and dead-lettered in the background or by reconciliation.
    """
    rejected = Rejected(
        message_id=request.run,
        kind="run",
        body=request.request.model_dump_json(),
        reason=request.failure.type,
        description=request.failure.message,
        run=request.run,
    )
    send_in_background(
        clients, REJECTED_RUNS, rejected.to_message(), send=lambda: reject(clients, rejected)
    )
    return Done()


def reject(clients: Clients, rejected: Rejected) -> None:
    """Send to `rejected-runs` and dead-letter what is there, until it was this one.

    Returns when it is dead-lettered, or when the queue holds nothing more that this caller could
    take: then it was dead-lettered by an earlier try, or another caller has it in hand. Messages
    are taken one at a time, so that no credit is left that would lock another caller's message.
    Takes about a second, and at most 30 s beside the sending.

    Raises:
        azure.servicebus.exceptions.ServiceBusError: try all of it again.
    """
    clients.message_queues.send(REJECTED_RUNS, rejected.to_message())
    sweep(clients, until=rejected.message_id)


def reject_message(clients: Clients, body: bytes | str, failure: Failure) -> None:
    """Dead-letter a message that cannot be parsed, and alert the operators.

    The id is derived from the content: delivered again, the message is dead-lettered only once.
    """
    content = body.encode() if isinstance(body, str) else body
    message_id = f"message:{hashlib.sha256(content).hexdigest()[:32]}"
    reject(
        clients,
        Rejected(
            message_id=message_id,
            kind="message",
            body=content.decode(errors="replace"),
            reason=failure.type,
            description=failure.message,
        ),
    )
    _alert_rejected(clients, message_id, failure.message)


def _alert_rejected(clients: Clients, message_id: str, reason: str) -> None:
    alert = trouble(
        "message-rejected",
        alert_id=f"{message_id}:message-rejected",
        severity="error",
        at=datetime.now(UTC),
        data={"message_id": message_id, "reason": reason},
    )
    publish_alert(clients, alert)


def sweep(clients: Clients, *, until: str | None = None) -> int:
    """Dead-letter what is on `rejected-runs`, up to the message of an id; how many.

    Without an id: what processes left there when they died.
    """
    deadline = time.monotonic() + REJECT_DEADLINE_SECONDS
    count = 0
    with clients.service_bus.get_queue_receiver(REJECTED_RUNS) as receiver:
        while time.monotonic() < deadline:
            if until is None and not receiver.peek_messages(1):
                break  # a receive would wait for what nobody has sent
            received = receiver.receive_messages(
                max_message_count=1, max_wait_time=RECEIVE_WAIT_SECONDS
            )
            if not received:
                break
            message = received[0]
            if not _settle(
                receiver.dead_letter_message,
                message,
                reason=text_property(message, "reason") or "Unknown",
                error_description=text_property(message, "description"),
            ):
                continue
            count += 1
            if message.message_id == until:
                break
    return count


def collect(clients: Clients, queue: str, kind: Kind) -> int:
    """Bring what Service Bus itself dead-lettered on `queue` to `rejected-runs`; how many.

    It does so to a message whose handler failed ten times. Each comes with an alert. If the process
    dies on the way, the message is still there and is brought again, under the same id.
    """
    collected = 0
    with dead_letters(clients, queue) as letters:
        for letter in letters:
            message_id = str(letter.message_id)
            reason = letter.dead_letter_reason or "Unknown"
            description = letter.dead_letter_error_description or ""
            reject(
                clients,
                Rejected(
                    message_id=message_id,
                    kind=kind,
                    body=body_text(letter),
                    reason=reason,
                    description=f"on queue {queue}: {description}",
                    run=text_property(letter, "run"),
                ),
            )
            _alert_rejected(clients, message_id, f"{reason} on queue {queue}: {description}")
            letters.take(letter)
            collected += 1
    return collected


def give_back(clients: Clients, queue: str) -> int:
    """Put what Service Bus itself dead-lettered on a queue of events back on it; how many.

    An outage of storage fails ten deliveries of an event within a minute. The event itself is fine:
    one that cannot be understood is decided on, not raised. If the process dies on the way, the
    event comes twice.
    """
    count = 0
    with dead_letters(clients, queue) as letters:
        for letter in letters:
            message = Message(message_id=str(letter.message_id), body=body_text(letter))
            clients.message_queues.send(queue, message)
            letters.take(letter)
            count += 1
    return count


@contextmanager
def dead_letters(clients: Clients, queue: str) -> Generator[DeadLetters]:
    """Read the dead-letter queue of a queue.

    What was not taken when the block is left can be received again at once; after an error in the
    block, or the end of the process, when its lock has expired.
    """
    with clients.service_bus.get_queue_receiver(queue, sub_queue="deadletter") as receiver:
        letters = DeadLetters(receiver)
        yield letters
        letters.release()


class DeadLetters:
    """One pass through a dead-letter queue."""

    def __init__(self, receiver: ServiceBusReceiver) -> None:
        self._receiver = receiver
        self._held: list[ServiceBusReceivedMessage] = []

    def __iter__(self) -> Iterator[ServiceBusReceivedMessage]:
        """Every message once, oldest first, until there is none or the pass reaches its limits.

        It peeks before it receives, and asks for as many as it has not had: a receive that asks
        for more waits until its time is over, and leaves credit that takes long to give back. A
        message that another receiver has locked is peeked too; the pass waits for it once, until
        a receive comes back empty.

        The deadline is checked before every message: to handle one may take a second,
        and the locks of a whole batch run meanwhile.
        """
        deadline = time.monotonic() + SCAN_DEADLINE_SECONDS
        received = 0
        seen: set[int | None] = set()
        first = 1  # the pass has had every message before it
        while received < SCAN_LIMIT_MESSAGES:
            peeked = self._receiver.peek_messages(SCAN_BATCH_MESSAGES, sequence_number=first)
            if not peeked:
                return
            missing = {each.sequence_number for each in peeked} - seen
            if not missing:
                first = (peeked[-1].sequence_number or 0) + 1
                continue
            batch = self._receiver.receive_messages(
                max_message_count=len(missing), max_wait_time=RECEIVE_WAIT_SECONDS
            )
            if not batch:
                return
            received += len(batch)
            seen.update(letter.sequence_number for letter in batch)
            self._held.extend(batch)
            for letter in batch:
                if time.monotonic() >= deadline:
                    return
                yield letter

    def take(self, message: ServiceBusReceivedMessage) -> None:
        """Remove a message for good, when it has been handled.

        If its lock was lost meanwhile it stays, and comes again.
        """
        self._held.remove(message)
        _settle(self._receiver.complete_message, message)

    def release(self) -> None:
        """Give back what was not taken."""
        for message in self._held:
            _settle(self._receiver.abandon_message, message)
        self._held.clear()


def _settle(
    settle: Callable[..., None], message: ServiceBusReceivedMessage, **arguments: str | None
) -> bool:
    """False when the lock was lost: the message comes again, to this receiver or another."""
    from azure.servicebus.exceptions import (  # noqa: PLC0415 - as in handlers.configuration.clients
        MessageLockLostError,
    )

    try:
        settle(message, **arguments)
    except MessageLockLostError:
        return False
    return True


def text_property(message: ServiceBusReceivedMessage, name: str) -> str | None:
    """An application property as text; the SDK gives names and values as bytes or str."""
    properties: dict[Any, Any] = message.application_properties or {}
    value = properties.get(name.encode(), properties.get(name))
    return value.decode() if isinstance(value, bytes) else value


def body_text(message: ServiceBusReceivedMessage) -> str:
    """The body of a message as text; bytes that are no UTF-8 are replaced."""
    body: Any = message.body
    content = body if isinstance(body, bytes) else b"".join(body)
    return content.decode(errors="replace")
