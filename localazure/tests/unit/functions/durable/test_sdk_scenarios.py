"""The local engine reproduces the histories of the SDK's own tests.

Of each history, only inputs are used: the start, ends of tasks, events. In each episode, the SDK
runs the orchestrator, once directly and once with the host's wrapper, and the engine derives the
steps. They must be the steps that the history records, with the same ids, and the SDK's last answer
must be its answer to the original history.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from azure.durable_functions import Orchestrator

from harness.durable_records import an_execution
from harness.sdk_scenarios import Scenario, answer_of, scenarios
from localazure.functions.durable.engine import decision, episode
from localazure.functions.durable.engine.episode import Effects
from localazure.functions.durable.engine.history import STEPS, Event, EventType
from localazure.functions.durable.engine.instance import FINISHED, Execution
from localazure.functions.durable.engine.invocation import FunctionFailed, KnownFunctions
from localazure.functions.durable.engine.orchestrator_trigger import OrchestratorTrigger
from localazure.functions.durable.engine.replay_cursor import ReplayCursor
from localazure.functions.worker import orchestrators

MADE_BY_THE_ENGINE = STEPS | {
    EventType.ORCHESTRATOR_STARTED,
    EventType.EXECUTION_STARTED,
    EventType.ORCHESTRATOR_COMPLETED,
    EventType.EXECUTION_COMPLETED,
}
# Histories that no host writes, with what is wrong in each.
GO_ON_AFTER_THE_END = {
    "test_create_timer::test_timers_can_be_cancelled": "a canceled timer keeps no instance running",
    "test_create_timer::test_timers_can_be_cancelled_replayV2": "the same",
    "test_retries::test_redundant_completion_doesnt_get_processed[1]": "a task ends twice",
    "test_retries::test_retries_can_fail": "steps of an orchestrator whose first step failed it",
}
CONTRADICT_THE_ORCHESTRATOR = {
    "test_sequential_orchestrator::test_call_activity_with_none_return": (
        "the history has 'Hello' where the orchestrator calls 'hello_return_none': the name was "
        "passed as the parameter is_played"
    ),
}
# The number in azure-functions-durable 1.7.0, to notice scenarios that were not found.
EXPECTED_SCENARIOS = 110


class AllFunctions(KnownFunctions):
    """An app that has functions of all names."""

    def resolve(self, kind: str, name: str) -> str | None:
        del kind
        return name


class Retelling:
    """A scenario repeated with SDK and engine, episode by episode."""

    def __init__(self, scenario: Scenario) -> None:
        self._plain = Orchestrator.create(scenario.orchestrator)
        self._wrapped = orchestrators.wrap(self._plain)
        self._document = scenario.document
        self.execution = _execution(scenario.document)
        self._memo: dict[str, Any] = {}
        self._cursor = ReplayCursor()
        self.events: list[Event] = []
        self.answer = ""
        self.effects: Effects | None = None
        self.left_over: list[list[Event]] = []
        """Episodes in the scenario's history after the instance has ended."""

    @property
    def is_over(self) -> bool:
        return self.effects is not None and self.effects.status in FINISHED

    def tell(self) -> None:
        told = _episodes(self._document["history"])
        calls: deque[str] = deque()
        for number, recorded in enumerate(told):
            if self.is_over:
                self.left_over = told[number:]
                return
            messages = [
                _as_answer(event, calls)
                for event in recorded
                if event["EventType"] not in MADE_BY_THE_ENGINE
            ]
            if number and not messages:
                continue  # the engine has no episodes without messages
            self._episode(recorded[0]["Timestamp"], messages)
            calls += self._new_calls()

    def _episode(self, at: str, messages: list[Event]) -> None:
        execution = self.execution
        arrived = episode.begin(execution, at, started=bool(self.events), messages=messages)
        trigger = OrchestratorTrigger(
            execution=execution, past=self.events, arrived=arrived, memo=self._memo
        )
        self.answer = answer_of(self._plain, trigger.body)
        through_the_host = answer_of(self._wrapped, context=orchestrators.TriggerContext(trigger))
        assert through_the_host == self.answer
        try:
            json.loads(self.answer)
            decided = decision.from_answer(self.answer)
        except ValueError:
            decided = decision.from_failure(FunctionFailed("Exception", self.answer, ""))
        self.effects = episode.conclude(
            execution,
            self.events,
            arrived,
            decided,
            known=AllFunctions(),
            default_version=None,
            cursor=self._cursor,
        )
        self.events += self.effects.events

    def _new_calls(self) -> Iterator[str]:
        assert self.effects is not None
        for event in self.effects.events:
            if event["EventType"] == EventType.EVENT_SENT:
                request = json.loads(event["Input"])
                if not request["signal"]:
                    yield request["id"]


def _execution(document: dict[str, Any]) -> Execution:
    start: dict[str, Any] = next(
        event for event in document["history"] if event["EventType"] == EventType.EXECUTION_STARTED
    )
    given = document.get("input")
    return an_execution(
        instance_id=document["instanceId"],
        name=start.get("Name") or "orchestrator",
        version=start.get("Version"),
        input_json=None if given is None else json.dumps(given),
    )


def _episodes(events: list[dict[str, Any]]) -> list[list[Event]]:
    """Split a history at each OrchestratorStarted, with which an episode starts."""
    told: list[list[Event]] = []
    for event in events:
        if event["EventType"] == EventType.ORCHESTRATOR_STARTED:
            told.append([])
        told[-1].append({key: value for key, value in event.items() if key != "IsPlayed"})
    return told


def _as_answer(event: Event, calls: deque[str]) -> Event:
    """Replace the request id in an entity's response by the id that the engine assigned."""
    if event["EventType"] == EventType.EVENT_RAISED and event["Name"] == "0000":
        return {**event, "Name": calls.popleft()}
    return event


def _state(answer: str) -> dict[str, Any]:
    """Parse an answer of any replay schema: the older one groups actions by yield."""
    text = answer.rpartition(decision.OUT_OF_PROC_MARK)[2]
    state: dict[str, Any] = json.loads(text)
    state.pop("schemaVersion", None)
    return {**state, "actions": _leaves(state["actions"])}


def _leaves(actions: list[Any]) -> list[tuple[int, Any, Any]]:
    """Kind, name and input of all actions, without their groups."""
    found: list[tuple[int, Any, Any]] = []
    for action in actions:
        if isinstance(action, list):
            found += _leaves(action)
        elif "compoundActions" in action:
            found += _leaves(action["compoundActions"])
        else:
            found.append((action["actionType"], action.get("functionName"), action.get("input")))
    return found


def _steps(events: list[dict[str, Any]]) -> dict[int, tuple[int, str | None]]:
    """Event type and name of each step, by event id."""
    return {
        event["EventId"]: (event["EventType"], event.get("Name"))
        for event in events
        if event["EventType"] in STEPS
    }


# A fixture, because each test worker would run all SDK tests to collect parameters.
@pytest.fixture(scope="module")
def found() -> dict[str, Scenario]:
    return {scenario.name: scenario for scenario in scenarios()}


def test_the_scenarios_are_there(found: dict[str, Scenario]) -> None:
    assert len(found) == EXPECTED_SCENARIOS
    assert found.keys() >= GO_ON_AFTER_THE_END.keys() | CONTRADICT_THE_ORCHESTRATOR.keys()


# The SDK warns about its own codec, and some of its orchestrators catch GeneratorExit.
@pytest.mark.filterwarnings("ignore::DeprecationWarning:azure.durable_functions")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_scenarios_of_the_sdk_go_the_same_way(
    found: dict[str, Scenario], subtests: pytest.Subtests
) -> None:
    for name in sorted(found.keys() - CONTRADICT_THE_ORCHESTRATOR.keys()):
        with subtests.test(name):
            goes_the_same_way(found[name])


def goes_the_same_way(scenario: Scenario) -> None:
    retelling = Retelling(scenario)
    retelling.tell()
    assert bool(retelling.left_over) == (scenario.name in GO_ON_AFTER_THE_END)
    recorded, drawn = _steps(scenario.document["history"]), _steps(retelling.events)
    if not retelling.left_over:
        assert recorded.keys() <= drawn.keys()
    common = recorded.keys() & drawn.keys()
    assert {number: drawn[number] for number in common} == {
        number: recorded[number] for number in common
    }
    assert _state(retelling.answer) == _state(scenario.answer)
