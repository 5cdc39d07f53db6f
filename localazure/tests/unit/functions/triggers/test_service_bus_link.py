"""A link with a receiver that fails like the SDK's receiver."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusConnectionError

from localazure.functions.triggers.service_bus.link import Link


class Receiver:
    """A receiver that raises an error or blocks forever."""

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


class Settlement:
    """Records the settled messages."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.settled: list[Any] = []

    async def __call__(self, message: Any) -> None:
        self.settled.append(message)
        if self.error is not None:
            raise self.error


def link_to(receiver: Any) -> Any:
    link = Link()
    link.receiver = receiver
    return link


async def is_broken(link: Any) -> bool:
    """Whether the link refuses to settle a message, which would reopen the receiver."""
    settle = Settlement()
    with contextlib.suppress(ConnectionError):
        await link.settle(settle, "second")
    return settle.settled == []


@pytest.mark.parametrize(
    "lost", [ServiceBusConnectionError(message="gone"), ValueError("shut down"), OSError()]
)
async def test_a_settlement_that_loses_the_connection_ends_the_link(lost: Exception) -> None:
    receiver = Receiver()
    link = link_to(receiver)
    receiving = asyncio.create_task(link.receive(1))
    await asyncio.sleep(0)
    with pytest.raises(type(lost)):
        await link.settle(Settlement(lost), "first")
    with pytest.raises(ConnectionError):
        await receiving
    await asyncio.sleep(0)
    assert receiver.was_cancelled
    assert await is_broken(link)


async def test_a_receiver_that_loses_the_connection_ends_the_link() -> None:
    link = link_to(Receiver(ServiceBusConnectionError(message="gone")))
    with pytest.raises(ServiceBusConnectionError):
        await link.receive(1)
    assert await is_broken(link)


async def test_a_lost_lock_does_not_end_the_link() -> None:
    link = link_to(Receiver())
    with pytest.raises(MessageLockLostError):
        await link.settle(Settlement(MessageLockLostError(message="late")), "first")
    assert not await is_broken(link)
