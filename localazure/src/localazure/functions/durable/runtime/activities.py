"""Activities: run at least once, each completion recorded once.

The end of an activity whose orchestration has gone on without it (it was terminated, or started
anew: another execution id) is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from localazure.functions.durable.engine.history import NO_EVENT_ID, Event
from localazure.functions.durable.runtime.activity_call import ActivityCall
from localazure.functions.durable.runtime.hosted_app import HostedApp
from localazure.functions.durable.runtime.work_queue import WorkQueue
from localazure.functions.durable.store.records import Activity, Message, microseconds
from localazure.functions.durable.store.store import Store

_Key = tuple[str, int]  # execution id and event id


class ActivityRunner:
    """Runs scheduled activities, so many at once.

    Args:
        app: has them.
        store: where their end is recorded.
        deliver: takes the message that tells the orchestration.
    """

    def __init__(self, app: HostedApp, store: Store, deliver: Callable[[Message], None]) -> None:
        self._store = store
        self._call = ActivityCall(app)
        self._deliver = deliver
        self._clock = app.clock
        self._scheduled: dict[str, dict[int, Activity]] = {}  # by execution id and event id
        self._ended: dict[str, dict[int, tuple[Activity, Event]]] = {}  # ends not durable yet
        limit = app.options.max_concurrent_activity_functions
        self._queue = WorkQueue[_Key]("activity", limit, self._run)

    async def stop(self, drain_seconds: float) -> None:
        """Begin nothing more, wait so long for what runs, then cancel it."""
        await self._queue.stop(drain_seconds)

    def add(self, activity: Activity) -> None:
        """Run an activity, not before its due time."""
        key = (activity.execution_id, activity.event_id)
        self._scheduled.setdefault(activity.execution_id, {})[activity.event_id] = activity
        delay_us = activity.not_before_us and activity.not_before_us - microseconds(self._clock())
        if delay_us > 0:
            self._queue.request_later(key, delay_us / 1e6)
        else:
            self._queue.request(key)

    def take_up(self, activities: list[Activity]) -> None:
        """Have these run, and nothing else; but what has ended already is not run again."""
        ended, self._ended = self._ended, {}
        self._scheduled = {}
        for activity in activities:
            end = ended.get(activity.execution_id, {}).get(activity.event_id)
            if end is not None and end[0] == activity:
                self._end(*end)
            else:
                self.add(activity)

    def has_scheduled(self, execution_id: str) -> bool:
        """Whether activities of an execution wait or run."""
        return execution_id in self._scheduled

    def drop(self, execution_id: str) -> None:
        """Do not begin what an execution that is over still had scheduled."""
        self._scheduled.pop(execution_id, None)

    def settle(self, messages: Sequence[Message]) -> None:
        """Note that these became durable: the ends of activities among them."""
        for message in messages:
            ended = self._ended.get(message.execution_id or "")
            if ended is not None and message.sequence is None:
                ended.pop(message.event.get("TaskScheduledId", NO_EVENT_ID), None)
                if not ended:
                    del self._ended[message.execution_id or ""]

    def forget(self, execution_id: str) -> None:
        """Note that it is durable that an execution is over."""
        self._ended.pop(execution_id, None)

    async def _run(self, key: _Key) -> None:
        activity = self._find(key)
        if activity is None:
            return  # its orchestration ended before its turn came
        outcome = await self._call.run(activity)
        event = None
        if isinstance(outcome, Activity):  # it goes on later
            if await self._store.postpone_activity(outcome):
                asyncio.get_running_loop().call_soon(self.add, outcome)
        else:
            event = outcome
        # The store may have been read anew meanwhile. If it has the same activity then, this was
        # its run; if it has another one in its place, that is requested already.
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
        """Tell the orchestration. Its episode records the end; until then the activity stands."""
        self._ended.setdefault(activity.execution_id, {})[activity.event_id] = (activity, event)
        self._deliver(
            Message(target=activity.instance_id, execution_id=activity.execution_id, event=event)
        )
