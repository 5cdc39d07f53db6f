from __future__ import annotations

import gc
import signal
from pathlib import Path

import pytest
from azure.servicebus.exceptions import MessageSizeExceededError

from handlers.platform.clients import Clients
from handlers.platform.service_bus import Message
from handlers.platform.settings import Settings
from harness.part_process import PartProcess
from tests.local.handlers.world_with_messaging import Namespace, World, make_environment


def a_message(message_id: str, body: str = "{}") -> Message:
    return Message(message_id=message_id, body=body)


def test_what_does_not_fit_into_one_transfer_goes_in_several(
    namespace: Namespace, world: World
) -> None:
    bulk = [a_message(f"bulk-{number}", "x" * 100_000) for number in range(5)]
    world.clients.message_queues.send("retries", *bulk)
    assert len(namespace.take("retries")) == len(bulk)


def test_a_message_beyond_the_limit_is_refused_and_the_sender_goes_on(
    namespace: Namespace, world: World
) -> None:
    queues = world.clients.message_queues
    with pytest.raises(MessageSizeExceededError):
        queues.send("retries", a_message("huge", "x" * 300_000))
    queues.send("retries", a_message("after-huge"))
    assert [str(each.message_id) for each in namespace.take("retries")] == ["after-huge"]


# The SDK drops the socket of the lost connection without closing it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_sending_goes_on_after_the_broker_was_killed(tmp_path: Path) -> None:
    environment = make_environment(tmp_path, "http://127.0.0.1:1")
    clients = Clients(Settings({"ServiceBus": environment.service_bus_connection_string}))
    with PartProcess("servicebus", tmp_path) as broker, clients.service_bus:
        queues = clients.message_queues
        queues.send("retries", a_message("before-kill"))
        broker.end(signal.SIGKILL)
        broker.start()
        queues.send("retries", a_message("after-kill"))
        received = Namespace(clients).take("retries")
    assert sorted(str(each.message_id) for each in received) == ["after-kill", "before-kill"]
    del queues, clients
    gc.collect()  # collect the dropped socket within this test
