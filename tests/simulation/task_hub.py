"""A task hub under the virtual clock: localazure's pure engine, and the real SDK.

As on Azure, what is committed survives the host: histories, messages, scheduled activities and
timers. An episode is committed whole, in one moment of the virtual clock. Activities are run by
`run_activity`, which the caller sets, and may end more than once: the first end counts.
"""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

import azure.durable_functions as df

from localazure.functions.durable.engine import decision, episode, history
from localazure.functions.durable.engine.decision import Decision
from localazure.functions.durable.engine.episode import Effects
from localazure.functions.durable.engine.history import Event, EventType
from localazure.functions.durable.engine.instance import FINISHED, LIVE, Execution, Parent, Status
from localazure.functions.durable.engine.invocation import FunctionFailed, KnownFunctions
from localazure.functions.durable.engine.orchestrator_trigger import OrchestratorTrigger
from localazure.functions.durable.engine.replay_cursor import ReplayCursor
from localazure.functions.worker import orchestrators as worker
from tests.simulation import resident_orchestrators
from tests.simulation.scheduler import Scheduler

Orchestrator = Callable[[Any], Any]
DEFAULT_VERSION = "1.0"
ExecutionMode = Literal["resident", "worker", "sdk"]
"""Go on where an orchestrator stopped; replay as localazure's worker does, or as the SDK does."""


@dataclass(frozen=True, kw_only=True)
class ActivityCall:
    """One scheduled activity; it stands until its first end is recorded."""

    instance_id: str
    execution_id: str
    event_id: int
    name: str
    input_json: str


@dataclass
class HubInstance:
    """One orchestration instance."""

    execution: Execution
    created_at: datetime
    last_updated_at: datetime
    status: Status = Status.PENDING
    is_started: bool = False
    output_json: str | None = None
    events: list[Event] = field(default_factory=list[Event])
    inbox: list[tuple[str | None, Event]] = field(default_factory=list[tuple[str | None, Event]])
    """Messages with the execution that they are for; None: any."""
    activities: dict[int, ActivityCall] = field(default_factory=dict[int, ActivityCall])
    memo: dict[str, Any] = field(default_factory=dict[str, Any])
    cursor: ReplayCursor = field(default_factory=ReplayCursor)
    is_woken: bool = False
    generations: int = 1
    longest_history: int = 0
    activities_run: int = 0
    custom_statuses: list[str] = field(default_factory=list[str])
    """Every one that was set, as JSON texts."""

    @property
    def id(self) -> str:
        return self.execution.instance_id

    @property
    def is_live(self) -> bool:
        return self.status in LIVE

    @property
    def output(self) -> Any:
        return json.loads(self.output_json or "null")

    @property
    def error(self) -> str | None:
        """Why it failed; None when it did not."""
        return self.output if self.status is Status.FAILED else None

    @property
    def statuses(self) -> list[Any]:
        """Every custom status that was set."""
        return [json.loads(status) for status in self.custom_statuses]

    @property
    def custom_status(self) -> Any:
        return json.loads(self.custom_statuses[-1]) if self.custom_statuses else None


class TaskHub:
    """The instances of one app.

    Args:
        scheduler: the clock.
        orchestrators: by name.
        activities: the names that the orchestrators may call.
        latency: seconds that a step of the hub takes.
        execution: how the SDK runs orchestrators.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        orchestrators: Mapping[str, Orchestrator],
        activities: tuple[str, ...],
        latency: Callable[[], float],
        execution: ExecutionMode = "resident",
    ) -> None:
        self._scheduler = scheduler
        self._latency = latency
        self._known = KnownFunctions(orchestrator=orchestrators, activity=activities)
        self._functions = {
            name: _as_worker_function(function, execution)
            for name, function in orchestrators.items()
        }
        self._executions = 0
        self.instances: dict[str, HubInstance] = {}
        self.is_up = True
        """Whether there is a host to run episodes and activities."""
        self.run_activity: Callable[[ActivityCall], None] = lambda _: None
        self.on_episode: Callable[[HubInstance], None] = lambda _: None

    # --- clients ---------------------------------------------------------------------------------

    def start(
        self, name: str, instance_id: str, given: Any, *, parent: Parent | None = None
    ) -> HubInstance:
        """Start an orchestration; a finished instance is replaced.

        Raises:
            RuntimeError: an instance of that id is live.
        """
        before = self.instances.get(instance_id)
        if before is not None and before.is_live:
            raise RuntimeError(
                f"An Orchestration instance with the status {before.status} already exists."
            )
        now = self._scheduler.now
        execution = Execution(
            instance_id=instance_id,
            execution_id=self._next_execution(),
            name=name,
            version=DEFAULT_VERSION,
            input_json=given if parent else json.dumps(json.dumps(given)),
            created_at=now,
            parent=parent,
        )
        instance = HubInstance(execution, created_at=now, last_updated_at=now)
        self.instances[instance_id] = instance
        self._wake(instance)
        return instance

    def raise_event(self, instance_id: str, name: str, data: Any = None) -> None:
        """Send an external event."""
        event = history.event_raised(self._timestamp(), name, json.dumps(data))
        self._deliver(instance_id, None, event)

    def terminate(self, instance_id: str, reason: str) -> None:
        """End an instance from outside, as people do."""
        event = history.execution_terminated(self._timestamp(), reason)
        self._deliver(instance_id, None, event)

    # --- the host --------------------------------------------------------------------------------

    def go_down(self) -> None:
        """The host's process died: its memory is lost."""
        self.is_up = False
        for instance in self.instances.values():
            instance.is_woken = False
            instance.memo, instance.cursor = {}, ReplayCursor()

    def come_up(self) -> None:
        """Take up what the hub says is not finished."""
        self.is_up = True
        for instance in self.instances.values():
            if not instance.is_live:
                continue
            for call in instance.activities.values():
                self._dispatch(call)
            if instance.inbox or not instance.is_started:
                self._wake(instance)

    def complete(self, call: ActivityCall, result: Any) -> None:
        """An execution of an activity returned."""
        event = history.task_completed(self._timestamp(), call.event_id, json.dumps(result))
        self._end(call, event)

    def fail(self, call: ActivityCall, error: Exception) -> None:
        """An execution of an activity raised."""
        event = history.task_failed(
            self._timestamp(),
            call.event_id,
            reason=f"Activity function '{call.name}' failed: {type(error).__name__}: {error}",
            details="",
        )
        self._end(call, event)

    def is_open(self, call: ActivityCall) -> bool:
        """Whether its orchestration still waits for it."""
        instance = self.instances[call.instance_id]
        return (
            instance.execution.execution_id == call.execution_id
            and call.event_id in instance.activities
        )

    def _end(self, call: ActivityCall, event: Event) -> None:
        if self.is_open(call):
            del self.instances[call.instance_id].activities[call.event_id]
            self._deliver(call.instance_id, call.execution_id, event)

    def _dispatch(self, call: ActivityCall) -> None:
        def run() -> None:
            if self.is_up and self.is_open(call):
                self.instances[call.instance_id].activities_run += 1
                self.run_activity(call)

        self._scheduler.after(self._latency(), run)

    # --- episodes --------------------------------------------------------------------------------

    def _deliver(self, instance_id: str, execution_id: str | None, event: Event) -> None:
        instance = self.instances[instance_id]
        if not instance.is_live:
            return
        if execution_id not in (None, instance.execution.execution_id):
            return
        instance.inbox.append((execution_id, event))
        self._wake(instance)

    def _wake(self, instance: HubInstance) -> None:
        if self.is_up and not instance.is_woken:
            instance.is_woken = True
            self._scheduler.after(self._latency(), functools.partial(self._run_episode, instance))

    def _run_episode(self, instance: HubInstance) -> None:
        if not instance.is_woken:
            return  # woken by a host that has died since
        instance.is_woken = False
        execution = instance.execution
        messages = [
            message for message in instance.inbox if message[0] in (None, execution.execution_id)
        ]
        batch = episode.next_batch(
            [event for _, event in messages],
            started=instance.is_started,
            suspended=instance.status is Status.SUSPENDED,
        )
        arrived = [messages[index][1] for index in batch]
        if instance.is_started and not arrived:
            instance.inbox.clear()
            return
        instance.inbox = [message for index, message in enumerate(messages) if index not in batch]
        self._commit(instance, self._conclude(instance, arrived))
        self.on_episode(instance)
        if instance.inbox and instance.is_live:
            self._wake(instance)

    def _conclude(self, instance: HubInstance, messages: list[Event]) -> Effects:
        execution, at = instance.execution, self._timestamp()
        if messages and messages[0]["EventType"] in episode.CONTROL_EVENTS:
            return episode.control(execution, at, started=instance.is_started, message=messages[0])
        arrived = episode.begin(execution, at, started=instance.is_started, messages=messages)
        trigger = OrchestratorTrigger(
            execution=execution, past=instance.events, arrived=arrived, memo=instance.memo
        )
        return episode.conclude(
            execution,
            instance.events,
            arrived,
            self._ask(execution.name, trigger),
            known=self._known,
            default_version=DEFAULT_VERSION,
            cursor=instance.cursor,
        )

    def _ask(self, name: str, trigger: OrchestratorTrigger) -> Decision:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of events that nothing waits for yet
                return self._functions[name](trigger)
        except Exception as error:  # noqa: BLE001 - the SDK raises a bare one
            return decision.from_failure(FunctionFailed(type(error).__name__, str(error), ""))

    def _commit(self, instance: HubInstance, effects: Effects) -> None:
        execution = instance.execution
        instance.last_updated_at = self._scheduler.now
        instance.status = effects.status
        instance.output_json = effects.output
        if effects.custom_status is not None:
            instance.custom_statuses.append(effects.custom_status)
        instance.events += effects.events
        instance.longest_history = max(instance.longest_history, len(instance.events))
        instance.is_started = True
        if effects.next_input is not None:
            self._renew(instance, effects.next_input)
            return
        for step in effects.steps:
            match step["EventType"]:
                case EventType.TASK_SCHEDULED:
                    call = ActivityCall(
                        instance_id=instance.id,
                        execution_id=execution.execution_id,
                        event_id=step["EventId"],
                        name=step["Name"],
                        input_json=step["Input"] or "null",
                    )
                    instance.activities[call.event_id] = call
                    self._dispatch(call)
                case EventType.TIMER_CREATED:
                    self._set_timer(execution, step)
                case EventType.SUB_ORCHESTRATION_INSTANCE_CREATED:
                    self._start_child(execution, step)
                case _:
                    raise NotImplementedError(f"no orchestrator of the app does {step}")
        if effects.status in FINISHED:
            instance.activities.clear()
            instance.inbox.clear()
        if effects.parent_event is not None and execution.parent is not None:
            parent = execution.parent
            self._deliver(parent.instance_id, parent.execution_id, effects.parent_event)

    def _renew(self, instance: HubInstance, next_input: str) -> None:
        instance.execution = replace(
            instance.execution, execution_id=self._next_execution(), input_json=next_input
        )
        instance.events, instance.memo, instance.cursor = [], {}, ReplayCursor()
        instance.activities.clear()
        instance.is_started = False
        instance.generations += 1
        self._wake(instance)

    def _set_timer(self, execution: Execution, step: Event) -> None:
        def fire() -> None:
            event = history.timer_fired(self._timestamp(), step["EventId"], step["FireAt"])
            self._deliver(execution.instance_id, execution.execution_id, event)

        self._scheduler.at(history.parse_timestamp(step["FireAt"]), fire)

    def _start_child(self, execution: Execution, step: Event) -> None:
        parent = execution.as_parent(step["EventId"])
        try:
            self.start(step["Name"], step["InstanceId"], step["Input"], parent=parent)
        except RuntimeError as error:
            event = history.sub_orchestration_failed(
                self._timestamp(), step["EventId"], reason=str(error), details=""
            )
            self._deliver(parent.instance_id, parent.execution_id, event)

    def _next_execution(self) -> str:
        self._executions += 1
        return f"{self._executions:032x}"

    def _timestamp(self) -> str:
        return history.timestamp(self._scheduler.now)


def _as_worker_function(
    function: Orchestrator, execution: ExecutionMode
) -> Callable[[OrchestratorTrigger], Decision]:
    if execution == "resident":
        return resident_orchestrators.wrap(function)
    handle = df.Orchestrator.create(function)
    if execution == "sdk":
        return lambda trigger: decision.from_answer(handle(trigger.body))
    quick = worker.wrap(handle)
    return lambda trigger: decision.from_answer(quick(context=worker.TriggerContext(trigger)))
