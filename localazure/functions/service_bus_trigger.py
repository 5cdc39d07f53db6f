"""Service Bus triggers: peek-lock, complete when the function returned, abandon when it raised.

A message is asked for only when the function may take it, so none lies locked here while another
host could work on it (unless host.json's prefetchCount asks for that). The broker may be away, at
the start or later: the trigger keeps trying.

Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-service-bus-trigger
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import AutoLockRenewer, ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import ServiceBusError

from localazure.functions import logs, service_bus_message
from localazure.functions.connections import check_service_bus, service_bus_client
from localazure.functions.host_json import ServiceBusOptions
from localazure.functions.invocation import Invoker
from localazure.functions.loader import LoadedFunction

_LOG = logging.getLogger(f"{logs.HOST_LOGGER}.service_bus")

# How long one wait for a message lasts, hence how long a stop may take with nothing to do.
POLL_SECONDS: Final = 1.0
FIRST_RETRY_SECONDS: Final = 0.5
LONGEST_RETRY_SECONDS: Final = 15.0
# The SDK takes up to a second to close each of its links.
CLOSE_SECONDS: Final = 5.0


class ServiceBusTrigger:
    """One function on one queue, or on one subscription of a topic."""

    def __init__(
        self,
        function: LoadedFunction,
        invoker: Invoker,
        options: ServiceBusOptions,
        settings: Mapping[str, str],
    ) -> None:
        """A trigger that is yet to be started.

        Raises:
            ValueError: the connection is not configured, or sessions are asked for.
        """
        binding = function.trigger.settings
        if binding.get("isSessionsEnabled"):
            raise ValueError("isSessionsEnabled: sessions are not covered by this host yet")
        self._function = function
        self._invoker = invoker
        self._options = options
        self._settings = settings
        self._connection = str(binding.get("connection") or "AzureWebJobsServiceBus")
        check_service_bus(self._connection, settings)
        self._queue = binding.get("queueName")
        self._topic = binding.get("topicName")
        self._subscription = binding.get("subscriptionName")
        self._is_batched = str(binding.get("cardinality", "")).lower() == "many"
        self._stopping = asyncio.Event()
        self._asks_no_more = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def entity(self) -> str:
        """What it receives from."""
        return str(self._queue or f"{self._topic}/{self._subscription}")

    async def start(self) -> None:
        """Begin to receive."""
        self._task = asyncio.create_task(self._run(), name=f"service bus {self._function.name}")

    async def stop(self) -> None:
        """Ask for no more messages; those at work go on, and are settled when they are done."""
        self._stopping.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * POLL_SECONDS):
                await self._asks_no_more.wait()

    async def finish(self) -> None:
        """End it; the host has drained. A message still at work is delivered again elsewhere."""
        for task in self._running:
            task.cancel()
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._task

    async def _run(self) -> None:
        delay_seconds = 0.0
        while not self._stopping.is_set():
            try:
                await self._serve_connection()
            except Exception:  # noqa: BLE001 - whatever the SDK raises: a trigger never gives up
                delay_seconds = _longer(delay_seconds)
                _LOG.exception(
                    "the connection to %s broke, a new one in %.1f s", self.entity, delay_seconds
                )
                await self._pause(delay_seconds)
        self._asks_no_more.set()

    async def _serve_connection(self) -> None:
        async with (
            service_bus_client(self._connection, self._settings) as client,
            self._receiver(client) as receiver,
            AutoLockRenewer(
                max_lock_renewal_duration=self._options.max_auto_lock_renewal.total_seconds()
            ) as renewer,
        ):
            try:
                await self._receive_forever(receiver, renewer)
            finally:
                if self._stopping.is_set():
                    self._asks_no_more.set()
                # They settle through this very receiver.
                await asyncio.gather(*self._running, return_exceptions=True)

    def _receiver(self, client: ServiceBusClient) -> ServiceBusReceiver:
        prefetch_count = self._options.prefetch_count
        if self._queue:
            return client.get_queue_receiver(str(self._queue), prefetch_count=prefetch_count)
        return client.get_subscription_receiver(
            str(self._topic), str(self._subscription), prefetch_count=prefetch_count
        )

    async def _receive_forever(
        self, receiver: ServiceBusReceiver, renewer: AutoLockRenewer
    ) -> None:
        free = asyncio.Semaphore(self._options.max_concurrent_calls)
        most = self._options.max_message_batch_size if self._is_batched else 1
        delay_seconds = 0.0
        while not self._stopping.is_set():
            await free.acquire()
            try:
                messages = await receiver.receive_messages(most, max_wait_time=POLL_SECONDS)
            except (ServiceBusError, OSError) as error:
                free.release()
                delay_seconds = _longer(delay_seconds)
                _LOG.warning(
                    "cannot receive from %s, trying again in %.1f s: %s",
                    self.entity,
                    delay_seconds,
                    error,
                )
                await self._pause(delay_seconds)
                continue
            if delay_seconds:
                _LOG.info("receiving from %s again", self.entity)
                delay_seconds = 0.0
            if not messages:
                free.release()
                continue
            task = asyncio.create_task(self._handle(receiver, renewer, messages))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            task.add_done_callback(lambda _: free.release())

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _handle(
        self,
        receiver: ServiceBusReceiver,
        renewer: AutoLockRenewer,
        messages: Sequence[ServiceBusReceivedMessage],
    ) -> None:
        if self._options.max_auto_lock_renewal:
            for message in messages:
                renewer.register(receiver, message)
        data = (
            service_bus_message.many(messages)
            if self._is_batched
            else service_bus_message.one(messages[0])
        )
        try:
            await self._invoker.invoke(self._function, data)
        except Exception:  # noqa: BLE001 - the invoker has logged it
            settle = receiver.abandon_message
        else:
            if not self._options.auto_complete_messages:
                return
            settle = receiver.complete_message
        for message in messages:
            await self._settle(settle, message)

    async def _settle(
        self,
        settle: Callable[[ServiceBusReceivedMessage], Awaitable[None]],
        message: ServiceBusReceivedMessage,
    ) -> None:
        try:
            await settle(message)
        except (ServiceBusError, OSError, ValueError) as error:
            # Its lock ends, and the broker delivers it again: at least once.
            _LOG.warning(
                "cannot settle message %s from %s, it will come again: %s",
                message.message_id,
                self.entity,
                error,
            )


def _longer(delay_seconds: float) -> float:
    return min(delay_seconds * 2 or FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
