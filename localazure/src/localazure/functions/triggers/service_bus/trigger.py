"""Service Bus triggers: peek-lock; complete if the function returns, abandon if it raises.

A message is received only when the function can take it, so that no message is locked here while
another host could process it (unless host.json sets prefetchCount). maxConcurrentCalls and
maxAutoLockRenewalDuration apply only to functions that take single messages: batches run one after
the other, and their locks are not renewed. A batch whose function raised is abandoned regardless of
autoCompleteMessages. What a function has settled by hand (`settlement`) is not settled again. If
the broker is unreachable, at the start or later, the trigger retries.

Sources: https://learn.microsoft.com/azure/azure-functions/functions-bindings-service-bus-trigger;
for batches RunBatchReceiveLoopAsync ("executes functions at a concurrency level of 1") and
TriggerAndCompleteMessagesInternal of the extension 5.x,
https://github.com/Azure/azure-sdk-for-net/blob/main/sdk/servicebus/Microsoft.Azure.WebJobs.Extensions.ServiceBus/src/Listeners/ServiceBusListener.cs
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import ServiceBusError

from localazure.functions import logs
from localazure.functions.app import sdk_types
from localazure.functions.app.loader import LoadedFunction
from localazure.functions.configuration.connections import (
    DEFAULT_SERVICE_BUS,
    check_service_bus,
)
from localazure.functions.configuration.host_json import ServiceBusOptions
from localazure.functions.triggers.service_bus import message as service_bus_message
from localazure.functions.triggers.service_bus.binding_data import binding_data
from localazure.functions.triggers.service_bus.link import POLL_SECONDS, Link
from localazure.functions.worker.invocation import Invoker, TriggerData
from localazure.processes.pauses import wait_at_most

if TYPE_CHECKING:
    from localazure.functions.triggers.service_bus.settlement import SettlementService

_LOG = logging.getLogger(f"{logs.HOST_LOGGER}.service_bus")

FIRST_RETRY_SECONDS: Final = 0.5
LONGEST_RETRY_SECONDS: Final = 15.0
# The SDK polls for each confirmation, and the broker commits concurrent settlements together.
SETTLED_AT_ONCE: Final = 100
# Time for settling messages, and again for closing: the SDK takes up to a second for each link.
CLOSE_SECONDS: Final = 5.0


class ServiceBusTrigger:
    """Calls one function for the messages of a queue or of a topic's subscription."""

    def __init__(
        self,
        function: LoadedFunction,
        invoker: Invoker,
        options: ServiceBusOptions,
        settings: Mapping[str, str],
        settlement: SettlementService | None = None,
    ) -> None:
        """Create a trigger without starting it.

        Raises:
            ValueError: the connection is not configured, or the trigger requires sessions.
        """
        binding = function.trigger.settings
        if binding.get("isSessionsEnabled"):
            raise ValueError("isSessionsEnabled: sessions are not covered by this host yet")
        self._function = function
        self._invoker = invoker
        self._options = options
        self._settings = settings
        self._settlement = settlement
        self._auto_completes = bool(
            binding.get("autoCompleteMessages", options.auto_complete_messages)
        )
        self._connection = function.trigger.connection or DEFAULT_SERVICE_BUS
        check_service_bus(self._connection, settings)
        self._queue = binding.get("queueName")
        self._topic = binding.get("topicName")
        self._subscription = binding.get("subscriptionName")
        self._is_batched = function.trigger.is_batched
        self._stopping = asyncio.Event()
        self._asks_no_more = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._settling: set[asyncio.Task[None]] = set()
        """The running tasks whose function has ended; `finish` waits for them."""
        self._closing: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def entity(self) -> str:
        """The path of the queue or subscription."""
        return str(self._queue or f"{self._topic}/{self._subscription}")

    async def start(self) -> None:
        """Start receiving messages."""
        self._task = asyncio.create_task(self._run(), name=f"service bus {self._function.name}")

    async def stop(self) -> None:
        """Stop receiving messages; messages in progress continue and are settled at their end."""
        self._stopping.set()
        if self._task is None:
            return
        await wait_at_most(self._asks_no_more, 2 * POLL_SECONDS)

    async def finish(self) -> None:
        """Cancel messages still in progress after the drain; the broker delivers them again."""
        if self._task is None:
            return
        for task in {self._task, *self._running} - self._settling:
            task.cancel()
        await asyncio.wait({self._task, *self._settling}, timeout=CLOSE_SECONDS)
        if self._closing:
            await asyncio.wait(self._closing, timeout=CLOSE_SECONDS)

    async def _run(self) -> None:
        """Connect and receive; connect again after each failure."""
        free = asyncio.Semaphore(1 if self._is_batched else self._options.max_concurrent_calls)
        delay_seconds = 0.0
        while not self._stopping.is_set():
            link = Link()
            try:
                await link.open(self._connection, self._settings, self._options, self._receiver)
                await self._receive(link, free)
            except Exception as error:  # noqa: BLE001 - after any error, the trigger retries
                delay_seconds = 0.0 if link.has_received else delay_seconds
                delay_seconds = min(delay_seconds * 2 or FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
                _LOG.warning(
                    "cannot receive from %s, trying again in %.1f s: %s: %s",
                    self.entity,
                    delay_seconds,
                    type(error).__name__,
                    error,
                )
            finally:
                # Messages in progress are settled on their link; the next link need not wait.
                closing = asyncio.create_task(link.close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
            await wait_at_most(self._stopping, delay_seconds)
        self._asks_no_more.set()

    def _receiver(self, client: ServiceBusClient) -> ServiceBusReceiver:
        prefetch_count = self._options.prefetch_count
        if self._queue:
            return client.get_queue_receiver(str(self._queue), prefetch_count=prefetch_count)
        return client.get_subscription_receiver(
            str(self._topic), str(self._subscription), prefetch_count=prefetch_count
        )

    async def _receive(self, link: Link, free: asyncio.Semaphore) -> None:
        most = self._options.max_message_batch_size if self._is_batched else 1
        while not self._stopping.is_set():
            await free.acquire()
            if self._stopping.is_set():  # may be set during `acquire`
                return
            messages: list[ServiceBusReceivedMessage] = []
            try:
                messages = await link.receive(most)
            finally:
                if not messages:
                    free.release()
            if not link.has_received:
                link.has_received = True
                _LOG.info("'%s' receives from %s", self._function.name, self.entity)
            if messages:
                task = asyncio.create_task(self._handle(link, messages))
                for tasks in (self._running, link.running):
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                task.add_done_callback(lambda _: free.release())

    async def _handle(self, link: Link, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        receiver = link.receiver
        if self._options.max_auto_lock_renewal_duration and not self._is_batched:
            link.renewer.register(receiver, messages[0])
        if self._settlement:
            self._settlement.hold(link, messages)
        try:
            await self._invoker.invoke(self._function, self._data(messages))
        except Exception:  # noqa: BLE001 - logged by the invoker, or by `_data`
            settle = receiver.abandon_message
        else:
            settle = receiver.complete_message if self._auto_completes else None
        if self._settlement:
            messages = self._settlement.release(messages)
        if settle is None:
            return
        # No await since the function ended, so that a drain cannot cancel the task before this.
        if (task := asyncio.current_task()) is not None:
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)
        for first in range(0, len(messages), SETTLED_AT_ONCE):
            together = messages[first : first + SETTLED_AT_ONCE]
            await asyncio.gather(*(self._settle(link, settle, message) for message in together))

    def _data(self, messages: Sequence[ServiceBusReceivedMessage]) -> TriggerData:
        is_batch = self._is_batched
        make = service_bus_message
        data = make.many(messages) if is_batch else make.one(messages[0])
        if not self._function.trigger.is_reference:
            return data
        try:
            contents = [binding_data(message) for message in messages]
        except ValueError as error:
            _LOG.error(
                "cannot give '%s' a message of %s: %s", self._function.name, self.entity, error
            )
            raise
        return replace(data, datum=sdk_types.message_reference(contents, is_batch=is_batch))

    async def _settle(
        self,
        link: Link,
        settle: Callable[[ServiceBusReceivedMessage], Awaitable[None]],
        message: ServiceBusReceivedMessage,
    ) -> None:
        try:
            await link.settle(settle, message)
        except (ServiceBusError, OSError, ValueError) as error:
            # The lock expires, and the broker delivers the message again: at least once.
            _LOG.warning(
                "cannot settle message %s from %s, it will be delivered again: %s",
                message.message_id,
                self.entity,
                error,
            )
