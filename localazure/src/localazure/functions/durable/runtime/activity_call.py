"""One run of an activity: its function, or an HTTP call, to the event that tells its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from localazure.functions import logs
from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.history import Event
from localazure.functions.durable.engine.invocation import FunctionFailed, Invoke, KnownFunctions
from localazure.functions.durable.engine.replay import HTTP_ACTIVITY
from localazure.functions.durable.options import DurableOptions
from localazure.functions.durable.runtime import http_activity
from localazure.functions.durable.runtime.payloads import PayloadLimits, PayloadTooLarge
from localazure.functions.durable.store.records import Activity, microseconds


class ActivityCall:
    """Runs activities; writes nothing.

    Args:
        invoke: runs a function of the app.
        known: the functions that the app registered.
        options: whether activities run twice; the pause between HTTP polls.
        payloads: checks results.
        clock: the current time, UTC.
    """

    def __init__(
        self,
        *,
        invoke: Invoke,
        known: KnownFunctions,
        options: DurableOptions,
        payloads: PayloadLimits,
        clock: Callable[[], datetime],
    ) -> None:
        self._invoke = invoke
        self._known = known
        self._options = options
        self._payloads = payloads
        self._clock = clock

    async def run(self, activity: Activity) -> Event | Activity:
        """How it ended; or the activity as it goes on later (an HTTP call with 202, a Location)."""
        if activity.name == HTTP_ACTIVITY:
            return await self._call_http(activity)
        return await self._call(activity)

    async def _call(self, activity: Activity) -> Event:
        name = self._known.resolve("activity", activity.name)
        if name is None:
            return self._failed(activity, self._known.missing("activity", activity.name))
        try:
            with logs.working_for(activity.instance_id):
                result = await self._invoke(name, activity.input_json or "null")
                if self._options.runs_twice(activity.name):
                    result = await self._invoke(name, activity.input_json or "null")
            self._payloads.check(f"the result of activity '{activity.name}'", result)
        except FunctionFailed as failure:
            return self._failed(activity, str(failure), failure.stack)
        except PayloadTooLarge as error:
            return self._failed(activity, str(error))
        return history.task_completed(self._now(), activity.event_id, result)

    async def _call_http(self, activity: Activity) -> Event | Activity:
        try:
            answer = await http_activity.call(
                activity.input_json or "", self._options.http_polling_milliseconds / 1000
            )
        except http_activity.HttpCallFailed as failure:
            return self._failed(activity, str(failure))
        if isinstance(answer, http_activity.PollLater):
            due_us = microseconds(self._clock()) + int(answer.delay_seconds * 1e6)
            return replace(activity, input_json=answer.request_json, not_before_us=due_us)
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
