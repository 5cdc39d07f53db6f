from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError

from handlers.platform.service_bus import OPS_ALERTS, Message, MessageQueues


class Sender:
    """A sender that is not thread-safe, like the SDK's, and says so."""

    def __init__(self, *faults: Exception) -> None:
        self.faults = list(faults)
        self.sent: list[str] = []
        self.closed = False
        self._busy = threading.Lock()

    def send_messages(self, message: ServiceBusMessage, timeout: float) -> None:
        assert timeout > 0
        assert self._busy.acquire(blocking=False), "used by two threads at once"
        try:
            if self.faults:
                raise self.faults.pop()
            threading.Event().wait(0.001)
            self.sent.append(str(message.message_id))
        finally:
            self._busy.release()

    def close(self) -> None:
        self.closed = True


class Namespace:
    def __init__(self, *senders: Sender) -> None:
        self.senders = list(senders)
        self.opened: list[str] = []

    def get_queue_sender(self, name: str) -> Sender:
        self.opened.append(name)
        return self.senders[len(self.opened) - 1]

    def get_topic_sender(self, name: str) -> Sender:
        return self.get_queue_sender(f"topic {name}")


def a_message(message_id: str = "m") -> Message:
    return Message(message_id=message_id, body="{}")


def test_one_sender_for_each_entity_and_one_thread_at_a_time() -> None:
    namespace: Any = Namespace(Sender(), Sender())
    queues = MessageQueues(namespace)
    names = [f"m-{number}" for number in range(50)]

    def send(name: str) -> None:
        queues.send("retries", a_message(name))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(send, names))
    queues.send(OPS_ALERTS, a_message("to a topic"))
    assert namespace.opened == ["retries", f"topic {OPS_ALERTS}"]
    assert sorted(namespace.senders[0].sent) == sorted(names)


def test_after_a_failure_the_next_message_gets_a_new_sender() -> None:
    broken, good = Sender(OperationTimeoutError()), Sender()
    namespace: Any = Namespace(broken, good)
    queues = MessageQueues(namespace)
    with pytest.raises(OperationTimeoutError):
        queues.send("retries", a_message("1"))
    assert broken.closed
    queues.send("retries", a_message("2"))
    assert (broken.sent, good.sent) == ([], ["2"])


def test_a_message_id_has_the_services_limit() -> None:
    with pytest.raises(ValueError, match="128"):
        a_message("x" * 129)
