"""One receiver of a Service Bus trigger, with its resources, until its connection is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NoReturn

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import AutoLockRenewer, ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import (
    MessageLockLostError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from localazure.functions import logs
from localazure.functions.configuration.connections import service_bus_client
from localazure.functions.configuration.host_json import ServiceBusOptions

_LOG = logging.getLogger(f"{logs.HOST_LOGGER}.service_bus")

# The longest wait for a message, and so the duration of a stop when the trigger is idle.
POLL_SECONDS: Final = 1.0
# A link may hang if its connection breaks at a bad moment; it is abandoned after this time.
HUNG_SECONDS: Final = 10.0


class Link:
    """One receiver, and the tasks that handle its messages.

    The first call that loses the connection ends the link for all calls. Otherwise each call of the
    SDK would reopen the receiver concurrently, and messages received meanwhile would stay locked.
    """

    receiver: ServiceBusReceiver
    renewer: AutoLockRenewer

    def __init__(self) -> None:
        self.running: set[asyncio.Task[None]] = set()
        self.has_received = False
        """Whether a receive has ever succeeded, even without messages."""
        self._broken = asyncio.Event()
        self._resources = contextlib.AsyncExitStack()

    async def open(
        self,
        connection: str,
        settings: Mapping[str, str],
        options: ServiceBusOptions,
        get_receiver: Callable[[ServiceBusClient], ServiceBusReceiver],
    ) -> None:
        """Connect to the broker and open the receiver.

        Raises:
            ServiceBusError: the broker is unreachable or refuses the receiver.
            ValueError: the connection is not configured.
        """
        enter = self._resources.enter_async_context
        client = await enter(
            # Disable the SDK's retries, which would reopen the same receiver concurrently and lose
            # the messages that it receives meanwhile. The trigger retries with a new link.
            service_bus_client(connection, settings, retry_total=0)
        )
        self.receiver = await enter(get_receiver(client))
        seconds = options.max_auto_lock_renewal_duration.total_seconds()
        self.renewer = AutoLockRenewer(max_lock_renewal_duration=seconds)
        self._resources.push_async_callback(self.renewer.close)

    async def receive(self, most: int) -> list[ServiceBusReceivedMessage]:
        """Receive the messages that arrive within `POLL_SECONDS`.

        Raises:
            ServiceBusError: the connection is lost.
            ConnectionError: the connection was lost when a message was settled.
            TimeoutError: the broker has not responded.
        """
        receiving = asyncio.ensure_future(
            self.receiver.receive_messages(most, max_wait_time=POLL_SECONDS)
        )
        receiving.add_done_callback(lambda task: task.cancelled() or task.exception())
        broken = asyncio.create_task(self._broken.wait())
        try:
            async with asyncio.timeout(POLL_SECONDS + HUNG_SECONDS):
                await asyncio.wait({receiving, broken}, return_when=asyncio.FIRST_COMPLETED)
            return await receiving if receiving.done() else self._give_up()
        except Exception:
            self._broken.set()
            raise
        finally:
            receiving.cancel()
            broken.cancel()

    def _give_up(self) -> NoReturn:
        raise ConnectionError("the connection was lost when a message was settled")

    async def settle(
        self,
        settle: Callable[[ServiceBusReceivedMessage], Awaitable[None]],
        message: ServiceBusReceivedMessage,
    ) -> None:
        """Settle a message; a lost connection ends the link for all.

        Raises:
            ServiceBusError: the message is not settled, or its state is unknown.
            OSError: the connection is lost.
            ValueError: the connection is lost; the SDK raises this, too.
        """
        if self._broken.is_set():
            raise ConnectionError("the connection was lost")
        try:
            async with asyncio.timeout(HUNG_SECONDS):
                await settle(message)
        except (MessageLockLostError, ServiceBusServerBusyError):
            raise
        except Exception:
            self._broken.set()
            raise

    async def close(self) -> None:
        """Wait for the running tasks, then close the link."""
        await asyncio.gather(*self.running, return_exceptions=True)
        try:
            await self._resources.aclose()
        except (ServiceBusError, OSError, ValueError) as error:
            _LOG.debug("closing a link: %s", error)
