"""Activities: at least once, each one's end recorded once.

The end of an activity whose orchestration has gone on without it (it was terminated, or started
anew: another execution id) is dropped.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from localazure.functions import logs
from localazure.functions.durable import history, http_activity
from localazure.functions.durable.history import Event
from localazure.functions.durable.invocation import FunctionFailed, Invoke, KnownFunctions
from localazure.functions.durable.options import DurableOptions
from localazure.functions.durable.records import Activity, Message, microseconds
from localazure.functions.durable.replay import HTTP_ACTIVITY
from localazure.functions.durable.store import Store
from localazure.functions.durable.work_queue import RETRY_SECONDS, WorkQueue

_logger = logging.getLogger(__name__)

_Key = tuple[str, int]  # execution id and event id


class ActivityRunner:
    """Runs scheduled activities, so many at once.

    Args:
        store: where their end is recorded.
        invoke: runs a function of the app.
        known: the functions that the app registered.
        options: the limit.
        deliver: takes the message that tells the orchestration.
        clock: the current time, UTC.
    """

    def __init__(
        self,
        *,
        store: Store,
        invoke: Invoke,
        known: KnownFunctions,
        options: DurableOptions,
        deliver: Callable[[Message], None],
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._invoke = invoke
        self._known = known
        self._options = options
        self._deliver = deliver
        self._clock = clock
        self._activities: dict[_Key, Activity] = {}
        self._writing: set[asyncio.Task[None]] = set()
        self._queue = WorkQueue[_Key](
            "activity", options.max_concurrent_activity_functions, self._run
        )

    async def stop(self, drain_seconds: float) -> None:
        """Begin nothing more, wait so long for what runs, then cancel it."""
        await self._queue.stop(drain_seconds)
        for task in self._writing:
            task.cancel()  # the transaction itself was handed in and is finished by the store
        await asyncio.gather(*self._writing, return_exceptions=True)

    def add(self, activity: Activity) -> None:
        """Have an activity run, not before its time."""
        key = (activity.execution_id, activity.event_id)
        self._activities[key] = activity
        delay_us = activity.not_before_us and activity.not_before_us - microseconds(self._clock())
        if delay_us > 0:
            self._queue.request_later(key, delay_us / 1e6)
        else:
            self._queue.request(key)

    async def _run(self, key: _Key) -> None:
        activity = self._activities.get(key)
        if activity is None:
            return  # its orchestration ended before its turn came
        if activity.name == HTTP_ACTIVITY:
            event = await self._call_http(activity)
        else:
            event = await self._call(activity)
        self._activities.pop(key, None)
        if event is not None:
            message = self._store.message(activity.instance_id, event, activity.execution_id)
            # The orchestrator may begin at once, while this is being written: transactions are
            # committed in the order in which they are handed in, so its episode, which consumes
            # the message, cannot become durable without it.
            task = asyncio.get_running_loop().create_task(self._record_end(activity, message))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)
            await asyncio.sleep(0)  # hand the transaction in first
            self._deliver(message)

    def drop(self, execution_id: str) -> None:
        """Do not begin what an execution that is over still had scheduled."""
        for key in [key for key in self._activities if key[0] == execution_id]:
            del self._activities[key]

    async def _record_end(self, activity: Activity, message: Message) -> None:
        while True:
            try:
                await self._store.complete_activity(activity, message)
            except sqlite3.Error:
                _logger.exception("the end of activity %s cannot be recorded yet", activity.name)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def _call(self, activity: Activity) -> Event:
        name = self._known.resolve("activity", activity.name)
        if name is None:
            return self._failed(activity, self._known.missing("activity", activity.name))
        try:
            with logs.working_for(activity.instance_id):
                result = await self._invoke(name, activity.input_json or "null")
        except FunctionFailed as failure:
            return self._failed(activity, str(failure), failure.stack)
        return history.task_completed(self._now(), activity.event_id, result)

    async def _call_http(self, activity: Activity) -> Event | None:
        """The answer of an HTTP call; None when it goes on later (202 and a Location)."""
        try:
            answer = await http_activity.call(
                activity.input_json or "", self._options.http_polling_milliseconds / 1000
            )
        except http_activity.HttpCallFailed as failure:
            return self._failed(activity, str(failure))
        if isinstance(answer, http_activity.PollLater):
            due_us = microseconds(self._clock()) + int(answer.delay_seconds * 1e6)
            later = replace(activity, input_json=answer.request_json, not_before_us=due_us)
            if await self._store.postpone_activity(later):
                asyncio.get_running_loop().call_soon(self.add, later)
            return None
        return history.task_completed(self._now(), activity.event_id, answer)

    def _failed(self, activity: Activity, error: str, stack: str = "") -> Event:
        return history.task_failed(
            self._now(),
            activity.event_id,
            reason=f"Activity function '{activity.name}' failed: {error}",
            details=stack,
        )

    def _now(self) -> str:
        return history.timestamp(self._clock())
