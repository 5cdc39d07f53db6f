"""The same broker with the unmodified SDK (aio): restarts, dead clients."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from localazure.runtime.environment import Environment
from localazure.servicebus.service import serve


def client_of(environment: Environment) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(
        environment.service_bus_connection_string, retry_backoff_factor=0.1
    )


async def receive_one(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    (message,) = await receiver.receive_messages(1, max_wait_time=10)
    return message


async def test_clients_outlive_a_restart_of_the_broker(
    make_environment: Callable[[Path], Environment], tmp_path: Path
) -> None:
    environment = make_environment(tmp_path)
    async with client_of(environment) as client:
        sender, receiver = client.get_queue_sender("plain"), client.get_queue_receiver("plain")
        async with serve(environment):
            await sender.send_messages([ServiceBusMessage("deferred"), ServiceBusMessage("kept")])
            due = datetime.now(UTC) + timedelta(seconds=1)
            await sender.schedule_messages(ServiceBusMessage("scheduled"), due)
            deferred = await receive_one(receiver)
            await receiver.defer_message(deferred)
            await receiver.abandon_message(await receive_one(receiver))
            locked = await receive_one(receiver)
        async with serve(environment):
            # Delivery counts survive a restart, locks do not.
            again = await receive_one(receiver)
            assert (str(again), again.delivery_count) == ("kept", 1)
            assert again.sequence_number == locked.sequence_number
            await receiver.complete_message(again)
            (aside,) = await receiver.receive_deferred_messages(deferred.sequence_number or 0)
            await receiver.complete_message(aside)
            scheduled = await receive_one(receiver)
            assert str(scheduled) == "scheduled"
            await receiver.complete_message(scheduled)
            await sender.send_messages(ServiceBusMessage("after"))
            after = await receive_one(receiver)
            # Sequence numbers continue although no message is left.
            assert (after.sequence_number or 0) > (again.sequence_number or 0) + 2
            await asyncio.gather(sender.close(), receiver.close())  # each close takes a second


async def test_a_dead_clients_messages_are_available_after_their_lock(
    environment: Environment,
) -> None:
    async with client_of(environment) as dying, dying.get_queue_sender("hasty") as sender:
        await sender.send_messages(ServiceBusMessage("orphan"))
        orphan = await receive_one(dying.get_queue_receiver("hasty"))
    async with client_of(environment) as client, client.get_queue_receiver("hasty") as heir:
        inherited = await receive_one(heir)
        assert inherited.sequence_number == orphan.sequence_number
        assert inherited.delivery_count == 1
        await heir.complete_message(inherited)


async def test_a_taken_port_is_an_error_that_leaves_nothing_running(
    environment: Environment, make_environment: Callable[[Path], Environment], tmp_path: Path
) -> None:
    second = dataclasses.replace(make_environment(tmp_path), ports=environment.ports)
    with pytest.raises(OSError, match="in use"):
        async with serve(second):
            pass
    assert asyncio.all_tasks() == {asyncio.current_task()}
