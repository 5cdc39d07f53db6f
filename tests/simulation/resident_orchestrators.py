"""Runs orchestrators of the SDK, each kept in memory between its episodes.

A replay of the whole history in every episode is most of a simulated week. An orchestrator that is
deterministic gives the same answers when it goes on where it stopped, with the events that are new;
the .NET host calls this extended sessions. The SDK's own executor handles every event, in the same
order. Whenever the host dies, orchestrators begin with a replay; `test_task_hub` compares all ways.
"""

# As in localazure's short cut, which makes the SDK's objects here.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from azure.durable_functions import Orchestrator

from localazure.functions.durable.engine.orchestrator_trigger import OrchestratorTrigger
from localazure.functions.worker import replay_shortcut


class _Session:
    """One orchestrator that is under way."""

    def __init__(self, function: Callable[[Any], Any], trigger: OrchestratorTrigger) -> None:
        self._orchestrator = Orchestrator(function)
        self._executor = self._orchestrator.task_orchestration_executor
        self._trigger = trigger
        self._seen = 0

    def begin(self) -> str:
        """Replay everything up to now."""
        trigger = self._trigger
        self._seen = len(trigger.past) + len(trigger.arrived)
        return self._orchestrator.handle(replay_shortcut._context(trigger, None))

    def go_on(self, trigger: OrchestratorTrigger) -> str:
        """Handle what happened since."""
        executor = self._executor
        for document in [*trigger.past[self._seen :], *trigger.arrived]:
            executor.process_event(replay_shortcut._event(document, is_played=False))
            if executor.has_execution_completed:
                break
        self._seen = len(trigger.past) + len(trigger.arrived)
        return executor.get_orchestrator_state_str()


def wrap(function: Callable[[Any], Any]) -> Callable[[OrchestratorTrigger], str]:
    """An orchestrator as the hub calls it: its session lies in the trigger's memo."""

    def call(trigger: OrchestratorTrigger) -> str:
        session: _Session | None = trigger.memo.get("session")
        if session is not None:
            return session.go_on(trigger)
        session = trigger.memo["session"] = _Session(function, trigger)
        return session.begin()

    return call
