"""Senders and receivers of the unmodified SDK (sync), with operations for tests."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSender,
    ServiceBusSubQueue,
)

WAIT_SECONDS = 10.0


class Handlers:
    """Senders and receivers, opened once for all tests because closing one may take a second."""

    def __init__(self, client: ServiceBusClient) -> None:
        self._client = client
        self._open: dict[Any, Any] = {}

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._open:
            self._open[key] = make().__enter__()
        return self._open[key]

    def sender(self, queue: str) -> ServiceBusSender:
        return self._once(("send", queue), lambda: self._client.get_queue_sender(queue))

    def topic_sender(self, topic: str) -> ServiceBusSender:
        return self._once(("publish", topic), lambda: self._client.get_topic_sender(topic))

    def receiver(self, queue: str, **options: Any) -> ServiceBusReceiver:
        key = ("receive", queue, *sorted(options.items()))
        return self._once(key, lambda: self._client.get_queue_receiver(queue, **options))

    def dead_letters(self, queue: str) -> ServiceBusReceiver:
        return self.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)

    def subscriber(self, topic: str, subscription: str) -> ServiceBusReceiver:
        return self._once(
            ("subscribe", topic, subscription),
            lambda: self._client.get_subscription_receiver(topic, subscription),
        )

    def close(self) -> None:
        with ThreadPoolExecutor(len(self._open)) as closers:
            for handler in self._open.values():
                closers.submit(handler.close)


def receive_one(
    receiver: ServiceBusReceiver, wait_seconds: float = WAIT_SECONDS
) -> ServiceBusReceivedMessage:
    messages = receiver.receive_messages(1, max_wait_time=wait_seconds)
    assert len(messages) == 1
    return messages[0]


def receive_all(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """Receive and complete exactly `count` messages."""
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < count:
        batch = receiver.receive_messages(count - len(found), max_wait_time=WAIT_SECONDS)
        assert batch
        for message in batch:
            receiver.complete_message(message)
        found += batch
    return found


def is_empty(receiver: ServiceBusReceiver) -> bool:
    return not receiver.peek_messages(sequence_number=1)


def body(message: Any) -> bytes:
    return b"".join(message.body)
