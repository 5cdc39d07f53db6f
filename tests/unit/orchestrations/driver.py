"""Drives orchestrators under a virtual clock: localazure's pure engine, and the real SDK.

Activities are plain functions on a simulated world that take effect some time after they were
called, as they do in reality. Nothing here sleeps.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from orchestrations.contracts.base import Contract, Failure
from orchestrations.errors import PermanentError, TransientError
from orchestrations.platform.activities import (
    ACTIVITIES,
    FAILURE_KEY,
    RESULT_KEY,
    describe,
    fault_text,
)
from tests.simulation.durable_client import DurableClient
from tests.simulation.scheduler import Scheduler
from tests.simulation.task_hub import ActivityCall, HubInstance, Orchestrator, TaskHub

START = datetime(2026, 11, 21, tzinfo=UTC)
Activities = Mapping[str, Callable[[dict[str, Any]], Any]]


def answered_by(answer: Callable[[str, Any], Contract]) -> Activities:
    """Activities by name. `answer` gets each activity's name and its request."""

    def run(name: str, given: dict[str, Any]) -> dict[str, Any]:
        try:
            result = answer(name, ACTIVITIES[name].from_dict(given))
        except PermanentError as error:
            failure = Failure(type=type(error).__name__, message=str(error), permanent=True)
            return {FAILURE_KEY: failure.to_dict()}
        except TransientError as error:
            raise RuntimeError(fault_text(describe(error))) from error
        return {RESULT_KEY: result.to_dict()}

    return {name: functools.partial(run, name) for name in ACTIVITIES}


def finish(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that awaits only the driver's client, which never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the coroutine waits for something that is not simulated")


class Driver:
    """The clock, the instances and the scheduled events.

    Args:
        activities: by name.
        orchestrators: by name.
        latency: seconds that a step takes; it may be replaced.
    """

    def __init__(
        self,
        *,
        activities: Activities,
        orchestrators: Mapping[str, Orchestrator],
        latency: Callable[[], float] = lambda: 0.01,
    ) -> None:
        self.latency = latency
        self._activities = activities
        self._scheduler = Scheduler(START)
        self._hub = TaskHub(
            self._scheduler,
            orchestrators=orchestrators,
            activities=tuple(activities),
            latency=lambda: self.latency(),  # noqa: PLW0108 - it may be replaced
        )
        self._hub.run_activity = self._run_activity
        self.activities_run = 0
        """Number of activities that were started."""
        self.client: Any = DurableClient(self._hub)
        """The durable client that triggers get."""

    @property
    def now(self) -> datetime:
        return self._scheduler.now

    @property
    def instances(self) -> dict[str, HubInstance]:
        return self._hub.instances

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self._scheduler.time()

    def at(self, seconds: float, action: Callable[[], Any]) -> None:
        """Schedule an action, in seconds after the start."""
        self._scheduler.at(START + timedelta(seconds=seconds), action)

    def after(self, seconds: float, action: Callable[[], Any]) -> None:
        self._scheduler.after(seconds, action)

    def run(self) -> None:
        """Run until nothing is scheduled."""
        self._scheduler.run()

    def start(self, orchestrator: str, instance: str, given: Any) -> HubInstance:
        return self._hub.start(orchestrator, instance, given)

    def terminate(self, prefix: str) -> None:
        """Terminate the instances whose ids begin with a text."""
        for name in [each for each in self.instances if each.startswith(prefix)]:
            self._hub.terminate(name, "an operator terminated it")

    def raise_event_at(self, seconds: float, instance: str, name: str) -> None:
        """Schedule an external event, in seconds after the start."""
        self.at(seconds, lambda: self._hub.raise_event(instance, name))

    def _run_activity(self, call: ActivityCall) -> None:
        self.activities_run += 1
        # The activity takes effect now; its result arrives later.
        try:
            result = self._activities[call.name](json.loads(call.input_json))
        except Exception as error:  # noqa: BLE001 - the engine retries it
            end = functools.partial(self._hub.fail, call, error)
        else:
            end = functools.partial(self._hub.complete, call, result)
        self._scheduler.after(self.latency(), end)
