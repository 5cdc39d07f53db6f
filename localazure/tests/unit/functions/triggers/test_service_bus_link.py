"""A link over a receiver that fails as the SDK's does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusConnectionError

from localazure.functions.triggers.service_bus.link import Link


class Receiver:
    """Waits for ever, unless it is given something to raise."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.was_cancelled = False

    async def receive_messages(self, *_: Any, **__: Any) -> list[Any]:
        if self.error is not None:
            raise self.error
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        return []


def link_to(receiver: Any) -> Link:
    link = Link()
    link.receiver = receiver
    return link


def settling(error: Exception | None) -> Any:
    async def settle(message: Any) -> None:
        settled.append(message)
        if error is not None:
            raise error

    settled: list[Any] = []
    settle.settled = settled  # pyright: ignore[reportFunctionMemberAccess]
    return settle


@pytest.mark.parametrize(
    "lost", [ServiceBusConnectionError(message="gone"), ValueError("shut down"), OSError()]
)
async def test_a_settlement_that_loses_the_connection_ends_the_link(lost: Exception) -> None:
    receiver = Receiver()
    link = link_to(receiver)
    receiving = asyncio.create_task(link.receive(1))
    await asyncio.sleep(0)
    with pytest.raises(type(lost)):
        await link.settle(settling(lost), "first")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConnectionError):
        await receiving
    await asyncio.sleep(0)
    assert receiver.was_cancelled
    # The others do not open the receiver again.
    settle = settling(None)
    with pytest.raises(ConnectionError):
        await link.settle(settle, "second")  # pyright: ignore[reportArgumentType]
    assert settle.settled == []


async def test_a_receiver_that_loses_the_connection_ends_the_link() -> None:
    link = link_to(Receiver(ServiceBusConnectionError(message="gone")))
    with pytest.raises(ServiceBusConnectionError):
        await link.receive(1)
    settle = settling(None)
    with pytest.raises(ConnectionError):
        await link.settle(settle, "second")  # pyright: ignore[reportArgumentType]
    assert settle.settled == []


async def test_a_lost_lock_is_the_message_s_own() -> None:
    link = link_to(Receiver())
    with pytest.raises(MessageLockLostError):
        await link.settle(settling(MessageLockLostError(message="late")), "first")  # pyright: ignore[reportArgumentType]
    settle = settling(None)
    await link.settle(settle, "second")  # pyright: ignore[reportArgumentType]
    assert settle.settled == ["second"]
