"""One receiver of a Service Bus trigger with all that it needs, until its connection is lost."""

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

# How long one wait for a message lasts, hence how long a stop may take with nothing to do.
POLL_SECONDS: Final = 1.0
# A link whose connection broke at the wrong moment may never answer: it is given up after this.
HUNG_SECONDS: Final = 10.0


class Link:
    """One receiver, and the messages at work that came by it.

    The first call that loses the connection ends the link for all: the SDK's calls would each open
    the receiver again, side by side, and what it is given meanwhile would lie locked.
    """

    receiver: ServiceBusReceiver
    renewer: AutoLockRenewer

    def __init__(self) -> None:
        self.running: set[asyncio.Task[None]] = set()
        self.has_received = False
        """Whether the broker has ever answered, be it that there is nothing."""
        self._broken = asyncio.Event()
        self._resources = contextlib.AsyncExitStack()

    async def open(
        self,
        connection: str,
        settings: Mapping[str, str],
        options: ServiceBusOptions,
        get_receiver: Callable[[ServiceBusClient], ServiceBusReceiver],
    ) -> None:
        """Connect and attach.

        Raises:
            ServiceBusError: the broker is away or refuses.
            ValueError: the connection is not configured.
        """
        enter = self._resources.enter_async_context
        client = await enter(
            # The trigger itself retries, on a new link: the retries of the SDK's calls would open
            # the same receiver again side by side, and lose what it receives meanwhile.
            service_bus_client(connection, settings, retry_total=0)
        )
        self.receiver = await enter(get_receiver(client))
        seconds = options.max_auto_lock_renewal_duration.total_seconds()
        self.renewer = AutoLockRenewer(max_lock_renewal_duration=seconds)
        self._resources.push_async_callback(self.renewer.close)

    async def receive(self, most: int) -> list[ServiceBusReceivedMessage]:
        """Messages that arrive within `POLL_SECONDS`.

        Raises:
            ServiceBusError: the connection is lost.
            ConnectionError: it was lost when a message was settled.
            TimeoutError: the broker has not answered.
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
            ServiceBusError: it is not settled, or nobody knows.
            OSError: the connection is lost.
            ValueError: the same, as the SDK has it.
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
        """Wait for what is at work, then close."""
        await asyncio.gather(*self.running, return_exceptions=True)
        try:
            await self._resources.aclose()
        except (ServiceBusError, OSError, ValueError) as error:
            _LOG.debug("closing a link: %s", error)
