"""Activities: each runs at least once, and its completion is recorded once.

The result of an activity is discarded if its execution is over: the orchestration was terminated
or continued as new, with another execution id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from localazure.functions.durable.engine.history import NO_EVENT_ID, Event
from localazure.functions.durable.runtime.hub_settings import HubSettings
from localazure.functions.durable.runtime.work_queue import WorkQueue
from localazure.functions.durable.runtime.worker import Worker
from localazure.functions.durable.store.records import Activity, Message, microseconds
from localazure.functions.durable.store.store import Store

_Key = tuple[str, int]  # execution id and event id


class ActivityRunner:
    """Runs scheduled activities, a limited number at once.

    Args:
        settings: its settings and clock.
        store: records the results of activities.
        worker: runs them.
        deliver: delivers a result to the orchestration.
    """

    def __init__(
        self,
        settings: HubSettings,
        store: Store,
        worker: Worker,
        deliver: Callable[[Message], None],
    ) -> None:
        self._store = store
        self._worker = worker
        self._deliver = deliver
        self._clock = settings.clock
        self._scheduled: dict[str, dict[int, Activity]] = {}  # by execution id and event id
        self._ended: dict[str, dict[int, tuple[Activity, Event]]] = {}  # not durable yet
        limit = settings.options.max_concurrent_activity_functions
        self._queue = WorkQueue[_Key]("activity", limit, self._run)

    async def stop(self, drain_seconds: float) -> None:
        """Start no more activities, wait for running ones, then cancel them."""
        await self._queue.stop(drain_seconds)

    def add(self, activity: Activity) -> None:
        """Run an activity when it is due."""
        key = (activity.execution_id, activity.event_id)
        self._scheduled.setdefault(activity.execution_id, {})[activity.event_id] = activity
        delay_us = activity.not_before_us and activity.not_before_us - microseconds(self._clock())
        if delay_us > 0:
            self._queue.request_later(key, delay_us / 1e6)
        else:
            self._queue.request(key)

    def take_up(self, activities: list[Activity]) -> None:
        """Replace all scheduled activities by these. Those that have ended are not run again."""
        ended, self._ended = self._ended, {}
        self._scheduled = {}
        for activity in activities:
            end = ended.get(activity.execution_id, {}).get(activity.event_id)
            if end is not None and end[0] == activity:
                self._end(*end)
            else:
                self.add(activity)

    def has_scheduled(self, execution_id: str) -> bool:
        """Whether an execution has activities that wait or run."""
        return execution_id in self._scheduled

    def drop(self, execution_id: str) -> None:
        """Remove the activities of an execution that is over; those that wait will not run."""
        self._scheduled.pop(execution_id, None)

    def settle(self, messages: Sequence[Message]) -> None:
        """Record that messages, and with them the results of activities, became durable."""
        for message in messages:
            ended = self._ended.get(message.execution_id or "")
            if ended is not None and message.sequence is None:
                ended.pop(message.event.get("TaskScheduledId", NO_EVENT_ID), None)
                if not ended:
                    del self._ended[message.execution_id or ""]

    def forget(self, execution_id: str) -> None:
        """Record that the end of an execution is durable."""
        self._ended.pop(execution_id, None)

    async def _run(self, key: _Key) -> None:
        activity = self._find(key)
        if activity is None:
            return  # its orchestration ended before it could start
        outcome = await self._worker.run_activity(activity)
        event = None
        if isinstance(outcome, Activity):  # to be continued later
            if await self._store.postpone_activity(outcome):
                asyncio.get_running_loop().call_soon(self.add, outcome)
        else:
            event = outcome
        # The store may have been reloaded meanwhile. If it had an equal activity, this was its run;
        # if it had a different one under this key, that one is already requested.
        if self._find(key) != activity:
            return
        siblings = self._scheduled[activity.execution_id]
        del siblings[activity.event_id]
        if not siblings:
            del self._scheduled[activity.execution_id]
        if event is not None:
            self._end(activity, event)

    def _find(self, key: _Key) -> Activity | None:
        execution_id, event_id = key
        return self._scheduled.get(execution_id, {}).get(event_id)

    def _end(self, activity: Activity, event: Event) -> None:
        """Notify the orchestration. Until its episode is durable, the store keeps the activity."""
        self._ended.setdefault(activity.execution_id, {})[activity.event_id] = (activity, event)
        self._deliver(
            Message(target=activity.instance_id, execution_id=activity.execution_id, event=event)
        )
