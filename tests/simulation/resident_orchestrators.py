"""Runs orchestrators of the SDK, each kept in memory between its episodes.

A replay of the whole history in every episode is most of a simulated week. An orchestrator that is
deterministic gives the same answers when it goes on where it stopped, with the events that are new;
the .NET host calls this extended sessions. The SDK's own executor handles every event, in the same
order. Whenever the host dies, orchestrators begin with a replay; `test_simulation` compares all
ways.
"""

# As in localazure's short cut, which makes the SDK's objects here.
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

from azure.durable_functions import Orchestrator
from azure.durable_functions.models.actions.CompoundAction import CompoundAction
from azure.durable_functions.models.actions.CreateTimerAction import CreateTimerAction

from localazure.functions.durable.engine import decision
from localazure.functions.durable.engine.decision import Action, Decision
from localazure.functions.durable.engine.orchestrator_trigger import OrchestratorTrigger
from localazure.functions.worker import replay_shortcut


class _Session:
    """An orchestrator in progress."""

    def __init__(self, orchestrator: Orchestrator, trigger: OrchestratorTrigger) -> None:
        self.orchestrator = orchestrator
        self._executor: Any = orchestrator.task_orchestration_executor
        self._seen = len(trigger.past) + len(trigger.arrived)
        self._documents: list[Action] = []
        """The document of each action so far."""
        self._timers: dict[int, list[CreateTimerAction]] = {}
        """The timers that are not cancelled, by the index of the action that they are part of."""
        self._status: tuple[Any, str | None] = (None, None)
        """The last custom status, and its JSON."""
        self._executor.initialize()

    @property
    def has_ended(self) -> bool:
        return self._executor.has_execution_completed

    def begin(self, trigger: OrchestratorTrigger) -> Decision:
        """Replay everything up to now."""
        answer = self.orchestrator.handle(replay_shortcut.make_context(trigger, None))
        return decision.from_answer(answer)

    def go_on(self, trigger: OrchestratorTrigger) -> Decision:
        """Handle what happened since."""
        executor = self._executor
        for document in [*trigger.past[self._seen :], *trigger.arrived]:
            executor.process_event(replay_shortcut.make_event(document, is_played=False))
            if executor.has_execution_completed:
                break
        self._seen = len(trigger.past) + len(trigger.arrived)
        if executor.has_execution_completed:
            return decision.from_answer(executor.get_orchestrator_state_str())
        return Decision(actions=self._action_documents(), custom_status=self._custom_status())

    def _action_documents(self) -> list[Action]:
        """The actions as in the SDK's answer; each is serialized again only after a change."""
        actions = self._executor.context._actions[0]
        changed = [
            index
            for index, timers in self._timers.items()
            if any(timer.is_cancelled for timer in timers)
        ]
        for index in [*changed, *range(len(self._documents), len(actions))]:
            self._documents[index : index + 1] = [actions[index].to_json()]
            self._timers[index] = [
                each for each in _timers(actions[index]) if not each.is_cancelled
            ]
            if not self._timers[index]:
                del self._timers[index]
        return self._documents.copy()

    def _custom_status(self) -> str | None:
        status = self._executor.context.custom_status
        if status is not self._status[0]:
            self._status = (status, json.dumps(status) if status else None)
        return self._status[1]


def _timers(action: Any) -> Iterator[CreateTimerAction]:
    """The timers of an action: to cancel one is the only change of an action."""
    kind = type(action)
    if kind is CreateTimerAction:
        yield action
    elif _is_compound(kind):
        for each in action.compound_tasks:
            yield from _timers(each)


@functools.cache
def _is_compound(kind: type) -> bool:
    return issubclass(kind, CompoundAction)


def wrap(function: Callable[[Any], Any]) -> Callable[[OrchestratorTrigger], Decision]:
    """An orchestrator as the hub calls it: its session lies in the trigger's memo."""
    idle: list[Orchestrator] = []  # the SDK makes a class for each of them

    def call(trigger: OrchestratorTrigger) -> Decision:
        session: _Session | None = trigger.memo.get("session")
        if session is not None:
            answer = session.go_on(trigger)
            if session.has_ended:
                idle.append(session.orchestrator)
            return answer
        orchestrator = idle.pop() if idle else Orchestrator(function)
        session = trigger.memo["session"] = _Session(orchestrator, trigger)
        return session.begin(trigger)

    return call
