"""The dead-letter queue of `rejected-runs`: failed runs, deliveries and messages.

In Service Bus only a receiver can dead-letter a message, with a reason and a description that tools
show. A rejected message is therefore sent to the queue with both as application properties, and
then received and dead-lettered.

If the process dies in between, the message stays on the queue, and the next caller or `sweep`
(called by reconciliation) dead-letters it. If it is sent again, the queue detects the duplicate by
its derived id. Concurrent callers may receive each other's messages; since each message has its own
reason, either caller can dead-letter it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from handlers.notify.outbox import publish_alert, trouble
from handlers.platform.activity_adapter import activity
from handlers.platform.clients import Clients
from handlers.platform.message_outbox import send_in_background
from handlers.platform.service_bus import REJECTED_RUNS, SENT_AGAIN, Message, fit_message_id
from orchestrations.contracts.base import Done, Failure
from orchestrations.contracts.runs import DeadLetter

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage, ServiceBusReceiver

Kind = Literal["run", "delivery", "message"]
"""A `RunRequest`, a `Delivery` of a notification, or a message that could not be parsed."""

# Constants.MaxDeadLetterReasonLength of the .NET SDK.
DEAD_LETTER_TEXT_LIMIT_CHARACTERS = 4_096

# The wait for messages that are on the queue already, over an open link.
RECEIVE_WAIT_SECONDS = 1.0
REJECT_DEADLINE_SECONDS = 30.0
# Well below a lock's 60 s, so that no message is received twice.
SCAN_DEADLINE_SECONDS = 30.0
SCAN_LIMIT_MESSAGES = 1_000
SCAN_BATCH_MESSAGES = 50


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """A rejected item and the reason."""

    message_id: str
    kind: Kind
    body: str
    reason: str
    description: str
    run: str | None = None

    def to_message(self) -> Message:
        """The message on `rejected-runs`."""
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
    """Dead-letter a run; `handlers.operate.redrive` sends it again on request.

    Idempotent, and safe to call concurrently. Does not wait for Service Bus: the request is
    recorded, and dead-lettered in the background or by reconciliation.
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
    """Send to `rejected-runs`, and dead-letter the queue's messages up to this one.

    Returns when it is dead-lettered, or when the queue has no message that this caller can receive:
    then an earlier try dead-lettered it, or another caller holds it. Messages are received one at a
    time, so that no unused credit locks another caller's message. Takes about 1 s, and at most 30 s
    in addition to the sending.

    Raises:
        azure.servicebus.exceptions.ServiceBusError: repeat the whole call.
    """
    clients.message_queues.send(REJECTED_RUNS, rejected.to_message())
    sweep(clients, until=rejected.message_id)


def reject_message(clients: Clients, body: bytes | str, failure: Failure) -> None:
    """Dead-letter a message that cannot be parsed, and alert the operators.

    The id is derived from the content, so a redelivered message is dead-lettered only once.
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
    """Dead-letter the messages on `rejected-runs`, up to an id; return their number.

    Without an id, dead-letters all messages, which processes left when they died.
    """
    deadline = time.monotonic() + REJECT_DEADLINE_SECONDS
    count = 0
    with clients.service_bus.get_queue_receiver(REJECTED_RUNS) as receiver:
        while time.monotonic() < deadline:
            if until is None and not receiver.peek_messages(1):
                break  # a receive on an empty queue would wait
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
    """Move what Service Bus dead-lettered on `queue` to `rejected-runs`; return the number.

    Service Bus dead-letters a message whose handler failed ten times. Each one raises an alert. If
    the process dies on the way, the message stays and is moved again under the same id. A message
    that says so (`SENT_AGAIN`) is put back on its queue instead.
    """
    collected = 0
    with dead_letters(clients, queue) as letters:
        for letter in letters:
            if text_property(letter, SENT_AGAIN) is not None:
                _give_back(clients, queue, letter)
                letters.take(letter)
                continue
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
    """Put events that Service Bus dead-lettered back on their queue; return the number.

    An outage of storage fails ten deliveries of an event within a minute. The event itself is
    valid: an unreadable one is logged, and raises no error. Each dead letter is sent under an id of
    its own, since a queue with duplicate detection drops one that it took in the last days. If the
    process dies on the way, an event is delivered twice on a queue without that detection.
    """
    count = 0
    with dead_letters(clients, queue) as letters:
        for letter in letters:
            _give_back(clients, queue, letter)
            letters.take(letter)
            count += 1
    return count


def _give_back(clients: Clients, queue: str, letter: ServiceBusReceivedMessage) -> None:
    again = fit_message_id(f"{letter.sequence_number}:{letter.message_id}")
    kept = {name: text_property(letter, name) for name in ("run", SENT_AGAIN)}
    properties = {name: value for name, value in kept.items() if value is not None}
    message = Message(message_id=again, body=body_text(letter), properties=properties)
    clients.message_queues.send(queue, message)


@contextmanager
def dead_letters(clients: Clients, queue: str) -> Generator[DeadLetters]:
    """Read the dead-letter queue of a queue.

    Messages that were not taken can be received again immediately after the block; after an error
    in the block, or the end of the process, once their locks have expired.
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
        """Yield every message once, oldest first, up to the limits of a pass.

        Peeks first, then receives exactly the number of new messages: a receive of more waits until
        its timeout, and leaves unused credit that is slow to return. Peeked messages include those
        locked by another receiver; the pass waits for them once, until a receive is empty.

        The deadline is checked before every message, since handling one may take 1 s while the
        locks of the whole batch are running.
        """
        deadline = time.monotonic() + SCAN_DEADLINE_SECONDS
        received = 0
        seen: set[int | None] = set()
        first = 1  # all messages before this number were received
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
        """Complete a message that has been handled.

        If its lock was lost, the message stays and is delivered again.
        """
        self._held.remove(message)
        _settle(self._receiver.complete_message, message)

    def release(self) -> None:
        """Abandon the messages that were not taken."""
        for message in self._held:
            _settle(self._receiver.abandon_message, message)
        self._held.clear()


def _settle(
    settle: Callable[..., None], message: ServiceBusReceivedMessage, **arguments: str | None
) -> bool:
    """Settle a message. False if its lock was lost: some receiver gets it again."""
    from azure.servicebus.exceptions import (  # noqa: PLC0415 - as in handlers.platform.clients
        MessageLockLostError,
    )

    try:
        settle(message, **arguments)
    except MessageLockLostError:
        return False
    return True


def text_property(message: ServiceBusReceivedMessage, name: str) -> str | None:
    """An application property as text; the SDK returns names and values as bytes or str."""
    properties: dict[Any, Any] = message.application_properties or {}
    value = properties.get(name.encode(), properties.get(name))
    return value.decode() if isinstance(value, bytes) else value


def body_text(message: ServiceBusReceivedMessage) -> str:
    """The body of a message as text; bytes that are not UTF-8 are replaced."""
    body: Any = message.body
    content = body if isinstance(body, bytes) else b"".join(body)
    return content.decode(errors="replace")
