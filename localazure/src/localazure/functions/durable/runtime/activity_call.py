"""One run of an activity, a function or an HTTP call; results in the event that ends it."""

from __future__ import annotations

from dataclasses import replace

from localazure.functions import logs
from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.history import Event
from localazure.functions.durable.engine.invocation import FunctionFailed
from localazure.functions.durable.engine.replay import HTTP_ACTIVITY
from localazure.functions.durable.runtime import http_activity
from localazure.functions.durable.runtime.app_functions import AppFunctions
from localazure.functions.durable.runtime.hub_settings import HubSettings
from localazure.functions.durable.runtime.payloads import PayloadTooLarge
from localazure.functions.durable.store.records import Activity, microseconds


class ActivityCall:
    """Runs activities of an app; does not write to the store."""

    def __init__(self, settings: HubSettings, functions: AppFunctions) -> None:
        self._settings = settings
        self._functions = functions

    async def run(self, activity: Activity) -> Event | Activity:
        """Return the event that ends it; or the next poll of an HTTP call, as an activity."""
        if activity.name == HTTP_ACTIVITY:
            return await self._call_http(activity)
        return await self._call(activity)

    async def _call(self, activity: Activity) -> Event:
        name = self._settings.known.resolve("activity", activity.name)
        if name is None:
            return self._failed(activity, self._settings.known.missing("activity", activity.name))
        try:
            with logs.working_for(activity.instance_id):
                result = await self._functions.invoke(name, activity.input_json or "null")
                if self._functions.runs_twice(activity.name):
                    result = await self._functions.invoke(name, activity.input_json or "null")
            self._settings.payloads.check(f"the result of activity '{activity.name}'", result)
        except FunctionFailed as failure:
            return self._failed(activity, str(failure), failure.stack)
        except PayloadTooLarge as error:
            return self._failed(activity, str(error))
        return history.task_completed(self._settings.now(), activity.event_id, result)

    async def _call_http(self, activity: Activity) -> Event | Activity:
        try:
            answer = await http_activity.call(
                activity.input_json or "", self._settings.options.http_polling_seconds
            )
        except http_activity.HttpCallFailed as failure:
            return self._failed(activity, str(failure))
        if isinstance(answer, http_activity.PollLater):
            due_us = microseconds(self._settings.clock()) + int(answer.delay_seconds * 1e6)
            return replace(activity, input_json=answer.request_json, not_before_us=due_us)
        return history.task_completed(self._settings.now(), activity.event_id, answer)

    def _failed(self, activity: Activity, error: str, stack: str = "") -> Event:
        return history.task_failed(
            self._settings.now(),
            activity.event_id,
            reason=f"Activity function '{activity.name}' failed: {error}",
            details=stack,
        )
