"""Listens on a storage queue: receives, handles and deletes messages; retries failed messages.

A message is handled at least once. It is hidden from other receivers while it is being handled. If
this process dies, it is visible again after at most VISIBILITY_SECONDS, as on Azure. After the last
attempt fails, a message is put into the poison queue before it is deleted.

Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-storage-queue-trigger
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from localazure.functions import logs
from localazure.functions.configuration.host_json import QueueOptions
from localazure.processes.background import cancel
from localazure.processes.pauses import wait_at_most
from localazure.storage_client.queue import ReceivedMessage, StorageQueue, decode

_LOG = logging.getLogger(f"{logs.HOST_LOGGER}.queue")

# The visibility timeout of the real extension; renewed after half of this time.
VISIBILITY_SECONDS: Final = 600
# Time to release or settle running messages when the host ends.
SETTLE_SECONDS: Final = 5.0


@dataclass(frozen=True)
class Work:
    """A message and its decoded content."""

    message: ReceivedMessage
    content: str | bytes


Open = Callable[[str], Awaitable[StorageQueue]]
"""Opens a queue by its name."""


class QueueListener:
    """Listens on one queue, with a poison queue. A message has failed if `handle` raises."""

    def __init__(
        self,
        name: str,
        poison_name: str,
        *,
        open_queue: Open,
        handle: Callable[[Work], Awaitable[None]],
        options: QueueOptions,
        chance: random.Random,
    ) -> None:
        self._name = name
        self._open_queue = open_queue
        self._poison_name = poison_name
        self._handle = handle
        self._options = options
        self._delay = PollingDelay(options.max_polling_interval.total_seconds(), chance)
        self._stopping = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._running: set[asyncio.Task[None]] = set()
        self._settling: set[asyncio.Task[None]] = set()
        """The running tasks that settle a handled message; `finish` waits for them."""
        self._task: asyncio.Task[None] | None = None
        self._is_cut_off = False

    async def start(self) -> None:
        """Start receiving messages."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop receiving messages; messages in progress continue."""
        self._stopping.set()
        self._has_room.set()
        if self._task is not None:
            await self._task

    async def finish(self) -> None:
        """Release messages that are still in progress after the drain, so that they are visible."""
        for task in self._running - self._settling:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=SETTLE_SECONDS)

    async def _run(self) -> None:
        while not self._stopping.is_set():
            await self._has_room.wait()
            if self._stopping.is_set():
                return
            if await self._receive():
                self._delay.found()
            else:
                await wait_at_most(self._stopping, self._delay.missed())

    async def _receive(self) -> bool:
        """Receive messages once and start handling them; return whether there were any."""
        try:
            queue = await self._open_queue(self._name)
            messages = await queue.receive(self._options.batch_size, VISIBILITY_SECONDS)
        except Exception as error:  # noqa: BLE001 - after any error, the trigger retries
            self._report_fault(error)
            return False
        if self._is_cut_off:
            self._is_cut_off = False
            _LOG.info("receiving from the queue %s again", self._name)
        for message in messages:
            self._begin(queue, message)
        return bool(messages)

    def _report_fault(self, error: Exception) -> None:
        # The queue is polled every two seconds: write one warning for an outage, not one per poll.
        level = logging.DEBUG if self._is_cut_off else logging.WARNING
        self._is_cut_off = True
        _LOG.log(
            level,
            "cannot receive from the queue %s, retrying: %s: %s",
            self._name,
            type(error).__name__,
            error,
        )

    def _begin(self, queue: StorageQueue, message: ReceivedMessage) -> None:
        task = asyncio.create_task(self._process(queue, message))
        self._running.add(task)
        self._count()
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._settling.discard(task)
        self._count()

    def _count(self) -> None:
        if len(self._running) <= self._options.new_batch_threshold or self._stopping.is_set():
            self._has_room.set()
        else:
            self._has_room.clear()

    async def _process(self, queue: StorageQueue, message: ReceivedMessage) -> None:
        hold = _Hold(queue, message)
        try:
            await self._settle(hold, is_done=await self._work(hold))
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):  # the visibility timeout releases the message, too
                await hold.show(0)
            raise
        except Exception as error:  # noqa: BLE001 - any error of the service
            _LOG.warning(
                "cannot settle message %s of the queue %s, it will be delivered again: %s",
                message.id,
                queue.name,
                error,
            )

    async def _work(self, hold: _Hold) -> bool:
        message = hold.message
        if message.dequeue_count > self._options.max_dequeue_count:
            return False  # in too many attempts the process died
        try:
            content = decode(message.text, is_base64=self._options.is_base64)
        except ValueError as error:
            _LOG.error(
                "message %s of the queue %s is %s; host.json's extensions.queues.messageEncoding "
                "must be the senders' encoding. The message goes to the poison queue",
                message.id,
                hold.queue.name,
                error,
            )
            hold.is_hopeless = True
            return False
        try:
            async with hold.renewed():
                await self._handle(Work(message, content))
        except Exception:  # noqa: BLE001 - logged by the invoker
            return False
        return True

    async def _settle(self, hold: _Hold, *, is_done: bool) -> None:
        # No await since the work ended, so that a drain cannot cancel the task before this line.
        if (task := asyncio.current_task()) is not None:
            self._settling.add(task)
        message = hold.message
        if is_done:
            await hold.delete()
        elif hold.is_hopeless or message.dequeue_count >= self._options.max_dequeue_count:
            poison = await self._open_queue(self._poison_name)
            await poison.put(message.text)
            await hold.delete()
            _LOG.warning(
                "message %s failed %d times and was moved to the queue %s",
                message.id,
                message.dequeue_count,
                poison.name,
            )
        else:
            await hold.show(int(self._options.visibility_timeout.total_seconds()))


class _Hold:
    """A message that this listener has received; its pop receipt changes with each renewal."""

    def __init__(self, queue: StorageQueue, message: ReceivedMessage) -> None:
        self.queue = queue
        self.message = message
        self.is_hopeless = False
        self._pop_receipt = message.pop_receipt

    @contextlib.asynccontextmanager
    async def renewed(self) -> AsyncGenerator[None]:
        """Keep the message hidden while the context is open."""
        renewal = asyncio.create_task(self._renew())
        try:
            yield
        finally:
            await cancel(renewal)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(VISIBILITY_SECONDS / 2)
            try:
                self._pop_receipt = await self.queue.hide(
                    self.message.id, self._pop_receipt, VISIBILITY_SECONDS
                )
            except Exception as error:  # noqa: BLE001 - any error of the service
                _LOG.warning("cannot keep message %s hidden: %s", self.message.id, error)

    async def show(self, after_seconds: int) -> None:
        await self.queue.hide(self.message.id, self._pop_receipt, after_seconds)

    async def delete(self) -> None:
        await self.queue.delete(self.message.id, self._pop_receipt)


SHORTEST_SECONDS: Final = 0.1  # QueuePollingIntervals.Minimum in the real extension
_JITTER: Final = 0.2


class PollingDelay:
    """The delay between polls of an empty queue. It doubles up to the longest, with some jitter.

    Source: https://github.com/Azure/azure-webjobs-sdk (RandomizedExponentialBackoffStrategy)
    """

    def __init__(self, longest_seconds: float, chance: random.Random) -> None:
        self._longest_seconds = longest_seconds
        self._chance = chance
        self._misses = 0
        self._delay_seconds = 0.0

    def found(self) -> None:
        """Reset the delay to the shortest one after a poll that found messages."""
        self._misses = 0
        self._delay_seconds = 0.0

    def missed(self) -> float:
        """Return the seconds until the next poll after an empty poll."""
        if self._delay_seconds < self._longest_seconds:
            jitter = self._chance.uniform(1 - _JITTER, 1 + _JITTER)
            more = jitter * 2 ** (self._misses - 1) if self._misses else 0
            self._delay_seconds = min((1 + more) * SHORTEST_SECONDS, self._longest_seconds)
            self._misses += 1
        return self._delay_seconds
