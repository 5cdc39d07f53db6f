"""Replay of one orchestration: matches the orchestrator's actions with its history.

The orchestrator returns *all* its actions since its start. As in the real extension
(OutOfProcOrchestrationShim), each is awaited before the next one starts. Starting an action assigns
sequence ids in the order of the Durable Task Framework, which the SDK mirrors. Steps that the
history records must match it; the others are new work.

No I/O, no clock, no randomness: the same input gives the same result.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict, deque
from collections.abc import Callable
from datetime import timedelta
from typing import ClassVar, Final

from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.decision import Action, Decision
from localazure.functions.durable.engine.history import Event, EventType
from localazure.functions.durable.engine.instance_id import InvalidInstanceId, check_instance_id
from localazure.functions.durable.engine.invocation import KnownFunctions
from localazure.functions.durable.engine.tasks import Awaited, all_of, any_of, ended

HTTP_ACTIVITY: Final = "BuiltIn::HttpActivity"  # azure.durable_functions.constants

_REQUEST_NAMESPACE: Final = uuid.UUID("6f7b1f4a-2f0b-5d5e-9d5e-4f2a8a0c7d11")


class ReplayFailed(Exception):
    """The orchestration fails; the message becomes its output."""


class Replay:
    """One replay of a decision's actions. `feed` adds the history event by event.

    Args:
        instance_id: the orchestration.
        execution_id: its current execution.
        decision: the orchestrator's decision after this history.
        known: the functions that may be called.
        default_version: the version of sub-orchestrations that specify none.
    """

    def __init__(
        self,
        *,
        instance_id: str,
        execution_id: str,
        decision: Decision,
        known: KnownFunctions,
        default_version: str | None,
    ) -> None:
        self._instance_id = instance_id
        self._execution_id = execution_id
        self._actions = decision.actions
        self._known = known
        self._default_version = default_version
        self._visible = 0  # actions of the orchestrator up to the current episode
        self._begun = 0
        self._current = ended()
        self._sequence = 0
        self._now = ""
        self._open: dict[int, Awaited] = {}
        self._waiting: defaultdict[str, list[Awaited]] = defaultdict(list)
        self._buffered: defaultdict[str, deque[Event]] = defaultdict(deque)
        self.new: dict[int, Event] = {}
        """Steps that are not in the history yet, by event id and in order."""
        self.next_input: str | None = None
        """JSON input of the next execution, once continue-as-new was called."""

    def adopt(self, decision: Decision) -> bool:
        """Continue with a later decision. Returns False if it changes the started actions."""
        if decision.actions[: self._begun] != self._actions[: self._begun]:
            return False
        self._actions = decision.actions
        return True

    @property
    def has_open_tasks(self) -> bool:
        """Whether an activity, a sub-orchestration or an uncanceled timer has not ended."""
        return bool(self._open)

    @property
    def finished(self) -> bool:
        """Whether all actions were started and awaited."""
        return self._begun == len(self._actions) and self._current.done

    def feed(self, event: Event) -> None:
        """Process the next event of the history.

        Raises:
            ReplayFailed: history and actions contradict each other, or an action cannot be begun.
        """
        handle = self._ON_EVENT.get(event["EventType"])
        if handle is not None:
            handle(self, event)

    # --- history -------------------------------------------------------------------------------

    def _on_orchestrator_started(self, event: Event) -> None:
        self._now = event["Timestamp"]
        self._visible = event.get("Actions", self._visible)

    def _on_recorded(self, event: Event) -> None:
        event_id = event["EventId"]
        step = self.new.pop(event_id, None)
        if step is None or not _same_step(step, event):
            replayed = "nothing" if step is None else _describe(step)
            raise ReplayFailed(
                f"Non-Deterministic workflow detected: history records {_describe(event)} "
                f"as step {event_id}, but the orchestrator's replay has {replayed} there. Was its "
                "code changed after this instance had started, or does it depend on the time, "
                "on chance or on the outside world?"
            )

    def _on_task_ended(self, event: Event) -> None:
        self._end_task(event["TaskScheduledId"], failed=False)

    def _on_task_failed(self, event: Event) -> None:
        self._end_task(event["TaskScheduledId"], failed=True)

    def _on_timer_fired(self, event: Event) -> None:
        self._end_task(event["TimerId"], failed=False)

    def _end_task(self, event_id: int, *, failed: bool) -> None:
        task = self._open.pop(event_id, None)
        if task is not None:  # None: a canceled timer, which nothing awaits
            task.complete(failed=failed)
        self._advance()

    def _on_event_raised(self, event: Event) -> None:
        waiting = self._waiting[event["Name"]]
        if waiting:
            waiting.pop().complete()  # the latest waiter first, as in the extension and the SDK
        else:
            self._buffered[event["Name"]].append(event)
        self._advance()

    def _on_execution_started(self, _event: Event) -> None:
        self._advance()

    # --- actions -------------------------------------------------------------------------------

    def _advance(self) -> None:
        while self._current.done and self._begun < min(self._visible, len(self._actions)):
            action = self._actions[self._begun]
            self._begun += 1
            self._current = self._begin(action)

    def _begin(self, action: Action) -> Awaited:
        try:
            return self._ON_ACTION[action["actionType"]](self, action)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ReplayFailed(
                f"this host cannot perform the orchestrator's action {action}: {error!r}"
            ) from error

    def _draw_id(self) -> int:
        self._sequence += 1
        return self._sequence - 1

    def _open_task(self, step: Event, retry_of: int | None = None) -> Awaited:
        if retry_of is not None:
            step["RetryOf"] = retry_of
        self.new[step["EventId"]] = step
        task = self._open[step["EventId"]] = Awaited()
        return task

    def _activity(self, action: Action, retry_of: int | None = None) -> Awaited:
        name = action["functionName"]
        if self._known.resolve("activity", name) is None:
            raise ReplayFailed(self._known.missing("activity", name))
        return self._schedule(name, action.get("input"), retry_of)

    def _http(self, action: Action) -> Awaited:
        return self._schedule(HTTP_ACTIVITY, json.dumps(action["httpRequest"]))

    def _schedule(self, name: str, input_json: str | None, retry_of: int | None = None) -> Awaited:
        step = history.task_scheduled(self._now, self._draw_id(), name=name, input_json=input_json)
        return self._open_task(step, retry_of)

    def _child(self, action: Action, retry_of: int | None = None) -> Awaited:
        name = action["functionName"]
        if self._known.resolve("orchestrator", name) is None:
            raise ReplayFailed(self._known.missing("orchestrator", name))
        event_id = self._draw_id()
        instance_id: str = action.get("instanceId") or f"{self._execution_id}:{event_id:04x}"
        try:
            check_instance_id(instance_id)
        except InvalidInstanceId as error:
            raise ReplayFailed(f"sub-orchestration '{name}': {error}") from None
        step = history.sub_orchestration_created(
            self._now,
            event_id,
            name=name,
            version=action.get("version") or self._default_version,
            instance_id=instance_id,
            input_json=json.dumps(action.get("input")),
        )
        return self._open_task(step, retry_of)

    def _timer(self, action: Action) -> Awaited:
        event_id = self._draw_id()
        timer = self._open_task(history.timer_created(self._now, event_id, action["fireAt"]))
        if action.get("isCanceled"):  # created nevertheless; when it fires, the event is ignored
            del self._open[event_id]
            timer.complete(failed=True)
        return timer

    def _event(self, action: Action) -> Awaited:
        return self._wait_for(action["externalEventName"])

    def _wait_for(self, name: str) -> Awaited:
        if self._buffered[name]:
            self._buffered[name].popleft()
            return ended()
        waiter = Awaited()
        self._waiting[name].append(waiter)
        return waiter

    def _call_entity(self, action: Action) -> Awaited:
        return self._wait_for(self._send(action, signal=False))

    def _signal_entity(self, action: Action) -> Awaited:
        self._send(action, signal=True)
        return ended()

    def _send(self, action: Action, *, signal: bool) -> str:
        """Send an operation. Returns the request's id, which is the name of the response event."""
        event_id = self._draw_id()
        target: str = action["instanceId"]
        name = target[1:].partition("@")[0]
        if self._known.resolve("entity", name) is None:
            raise ReplayFailed(self._known.missing("entity", name))
        request_id = str(uuid.uuid5(_REQUEST_NAMESPACE, f"{self._execution_id}:{event_id}"))
        request = {
            "op": action["operation"],
            "signal": signal,
            "input": json.dumps(action.get("input")),
            "id": request_id,
            "parent": self._instance_id,
            "parentExecution": self._execution_id,
        }
        self.new[event_id] = history.event_sent(
            self._now, event_id, target=target, input_json=json.dumps(request)
        )
        return request_id

    def _continue_as_new(self, action: Action) -> Awaited:
        self.next_input = json.dumps(action.get("input"))
        return ended()

    def _when_all(self, action: Action) -> Awaited:
        return all_of([self._begin(part) for part in action["compoundActions"]])

    def _when_any(self, action: Action) -> Awaited:
        return any_of([self._begin(part) for part in action["compoundActions"]])

    def _activity_with_retry(self, action: Action) -> Awaited:
        return self._with_retry(action, self._activity)

    def _child_with_retry(self, action: Action) -> Awaited:
        return self._with_retry(action, self._child)

    def _with_retry(
        self, action: Action, attempt: Callable[[Action, int | None], Awaited]
    ) -> Awaited:
        """Run attempts with a timer after each failed one. After the last one, it is due at once.

        The Durable Task Framework creates the last timer, too, and the SDK expects it.
        """
        options = action["retryOptions"]
        interval = timedelta(milliseconds=options["firstRetryIntervalInMilliseconds"])
        outcome = Awaited()
        first_id = self._sequence

        def run(attempts_left: int, retry_of: int | None) -> None:
            task = attempt(action, retry_of)
            task.then(lambda: settle(task, attempts_left - 1))

        def settle(task: Awaited, attempts_left: int) -> None:
            if not task.failed:
                outcome.complete()
                return
            now = history.parse_timestamp(self._now)
            fire_at = history.timestamp(now + interval) if attempts_left else self._now
            timer = self._open_task(
                history.timer_created(self._now, self._draw_id(), fire_at), first_id
            )
            if attempts_left:
                timer.then(lambda: run(attempts_left, first_id))
            else:
                timer.then(lambda: outcome.complete(failed=True))

        run(max(1, options["maxNumberOfAttempts"]), None)
        return outcome

    _ON_EVENT: ClassVar[dict[int, Callable[[Replay, Event], None]]] = {
        EventType.ORCHESTRATOR_STARTED: _on_orchestrator_started,
        EventType.EXECUTION_STARTED: _on_execution_started,
        EventType.TASK_SCHEDULED: _on_recorded,
        EventType.SUB_ORCHESTRATION_INSTANCE_CREATED: _on_recorded,
        EventType.TIMER_CREATED: _on_recorded,
        EventType.EVENT_SENT: _on_recorded,
        EventType.TASK_COMPLETED: _on_task_ended,
        EventType.SUB_ORCHESTRATION_INSTANCE_COMPLETED: _on_task_ended,
        EventType.TASK_FAILED: _on_task_failed,
        EventType.SUB_ORCHESTRATION_INSTANCE_FAILED: _on_task_failed,
        EventType.TIMER_FIRED: _on_timer_fired,
        EventType.EVENT_RAISED: _on_event_raised,
    }

    # Keys: azure.durable_functions.models.actions.ActionType.
    _ON_ACTION: ClassVar[dict[int, Callable[[Replay, Action], Awaited]]] = {
        0: _activity,
        1: _activity_with_retry,
        2: _child,
        3: _child_with_retry,
        4: _continue_as_new,
        5: _timer,
        6: _event,
        7: _call_entity,
        8: _http,
        9: _signal_entity,
        11: _when_any,
        12: _when_all,
    }


def _same_step(drawn: Event, recorded: Event) -> bool:
    if drawn["EventType"] != recorded["EventType"]:
        return False
    match drawn["EventType"]:
        case EventType.TIMER_CREATED:
            return True  # like DTFx, without a comparison of the times
        case EventType.EVENT_SENT:
            return drawn["InstanceId"] == recorded["InstanceId"]
        case _:
            return drawn["Name"].casefold() == recorded["Name"].casefold()


def _describe(step: Event) -> str:
    match step["EventType"]:
        case EventType.TASK_SCHEDULED:
            return f"activity '{step['Name']}'"
        case EventType.TIMER_CREATED:
            return "a timer"
        case EventType.SUB_ORCHESTRATION_INSTANCE_CREATED:
            return f"sub-orchestration '{step['Name']}'"
        case _:
            return f"an operation of entity '{step['InstanceId']}'"
