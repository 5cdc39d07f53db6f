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
from collections.abc import Callable
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
        self._actions: list[tuple[object, Action]] = []
        """The dependencies of each action's document, and the document."""
        self._status: tuple[Any, str | None] = (None, None)
        """The last custom status, and its JSON."""
        self._executor.initialize()

    @property
    def has_ended(self) -> bool:
        return self._executor.has_execution_completed

    def begin(self, trigger: OrchestratorTrigger) -> Decision:
        """Replay everything up to now."""
        answer = self.orchestrator.handle(replay_shortcut._context(trigger, None))
        return decision.from_answer(answer)

    def go_on(self, trigger: OrchestratorTrigger) -> Decision:
        """Handle what happened since."""
        executor = self._executor
        for document in [*trigger.past[self._seen :], *trigger.arrived]:
            executor.process_event(replay_shortcut._event(document, is_played=False))
            if executor.has_execution_completed:
                break
        self._seen = len(trigger.past) + len(trigger.arrived)
        if executor.has_execution_completed:
            return decision.from_answer(executor.get_orchestrator_state_str())
        return Decision(actions=self._action_documents(), custom_status=self._custom_status())

    def _action_documents(self) -> list[Action]:
        """The actions as in the SDK's answer; each is serialized again only after a change."""
        documents: list[Action] = []
        for index, action in enumerate(self._executor.context._actions[0]):
            state = _changeable(action)
            if index == len(self._actions):
                self._actions.append((None, {}))
            if self._actions[index][0] != state:
                self._actions[index] = (state, action.to_json())
            documents.append(self._actions[index][1])
        return documents

    def _custom_status(self) -> str | None:
        status = self._executor.context.custom_status
        if status is not self._status[0]:
            self._status = (status, json.dumps(status) if status else None)
        return self._status[1]


def _changeable(action: Any) -> object:
    """The mutable part of an action: timers are cancelled."""
    kind = type(action)
    if kind is CreateTimerAction:
        return action.is_cancelled
    if _is_compound(kind):
        return [_changeable(each) for each in action.compound_tasks]
    return True


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
