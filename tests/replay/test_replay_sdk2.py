"""The orchestrators take the recorded steps on azure-functions-durable 2, too.

That version is not on PyPI. Where it is not installed, durabletask's own classes, on which it is
built, run the orchestrators with a context that stands in for its compatibility layer.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import azure.durable_functions as df
import durabletask.internal.orchestrator_service_pb2 as pb
import pytest
from durabletask.task import when_any
from durabletask.worker import TaskHubGrpcWorker

from localazure.functions.durable.engine.history import EventType
from localazure.functions.durable.protocol.history_messages import to_message
from orchestrations.landing.forgetting import forgetting
from orchestrations.landing.freezing import freezing
from orchestrations.landing.landing import landing
from orchestrations.rollout.rollout import rollout
from orchestrations.training.promotion import promotion
from orchestrations.training.retraining import retraining
from tests.replay.recording import STEP_EVENTS, Document, Recording, load_all, split

Orchestrator = Callable[[Any], Generator[Any, Any, Any]]
ORCHESTRATORS: dict[str, Orchestrator] = {
    each.__name__: each for each in (landing, freezing, forgetting, retraining, promotion, rollout)
}
STEP_OF_ACTION = {
    "scheduleTask": EventType.TASK_SCHEDULED,
    "createSubOrchestration": EventType.SUB_ORCHESTRATION_INSTANCE_CREATED,
    "createTimer": EventType.TIMER_CREATED,
}


@pytest.mark.parametrize("recording", load_all(), ids=lambda each: each.name)
def test_every_episode_takes_the_recorded_steps(recording: Recording) -> None:
    """durabletask itself compares the steps of the past: an episode that differs fails."""
    history = [_as_version_2(event) for event in recording.trigger["history"]]
    execute = _executor(ORCHESTRATORS[recording.orchestrator])
    steps = list(_steps_after_episodes(history))
    for number, (past, arrived) in enumerate(split(history)):
        answer = execute(
            pb.OrchestratorRequest(
                instanceId=recording.trigger["instanceId"],
                pastEvents=map(to_message, past),
                newEvents=map(to_message, arrived),
            )
        )
        custom_status = answer.customStatus.value
        assert json.loads(custom_status or "null") == recording.episodes[number]["customStatus"]
        actions = {each.WhichOneof("orchestratorActionType"): each for each in answer.actions}
        if number < len(steps) - 1:
            assert [_step(each) for each in answer.actions] == steps[number]
        elif (end := actions.get("completeOrchestration")) is not None:
            _check_end(end.completeOrchestration, recording)


def _check_end(end: pb.CompleteOrchestrationAction, recording: Recording) -> None:
    result = json.loads(end.result.value or "null")
    if end.orchestrationStatus == pb.ORCHESTRATION_STATUS_CONTINUED_AS_NEW:
        assert result == json.loads(recording.actions[-1]["input"])
    else:
        assert end.orchestrationStatus == pb.ORCHESTRATION_STATUS_COMPLETED
        assert result == recording.answer.get("output")


def _steps_after_episodes(history: list[Document]) -> Iterator[list[Document]]:
    found: list[Document] = []
    for event in history[1:]:
        if event["EventType"] == EventType.ORCHESTRATOR_STARTED:
            yield found
            found = []
        elif event["EventType"] in STEP_EVENTS:
            found.append(_comparable(event))
    yield found


def _comparable(event: Document) -> Document:
    kept = {key: event.get(key) for key in ("EventId", "Name", "InstanceId")}
    if event["EventType"] == EventType.TIMER_CREATED:
        return kept | {"at": datetime.fromisoformat(event["FireAt"])}
    return kept | {"input": json.loads(event["Input"])}


def _step(action: pb.OrchestratorAction) -> Document:
    kind = action.WhichOneof("orchestratorActionType")
    assert kind in STEP_OF_ACTION, kind
    step = getattr(action, kind)
    kept = {
        "EventId": action.id,
        "Name": getattr(step, "name", None),
        "InstanceId": getattr(step, "instanceId", None),
    }
    if kind == "createTimer":
        return kept | {"at": step.fireAt.ToDatetime(UTC)}
    return kept | {"input": json.loads(step.input.value)}


def _as_version_2(event: Document) -> Document:
    """An event as version 2 causes it: ids begin with 1, and an input is encoded once."""
    changed = dict(event)
    for key in ("EventId", "TaskScheduledId", "TimerId"):
        if event.get(key, -1) >= 0:
            changed[key] += 1
    given = json.loads(event.get("Input") or "null")
    return changed | {"Input": given} if isinstance(given, str) else changed


def _executor(
    orchestrator: Orchestrator,
) -> Callable[[pb.OrchestratorRequest], pb.OrchestratorResponse]:
    """What answers requests, as the host would ask it."""
    if hasattr(df, "DurableFunctionsClient"):
        handle: Any = df.Orchestrator.create(orchestrator)

        def ask(request: pb.OrchestratorRequest) -> pb.OrchestratorResponse:
            encoded = base64.b64encode(request.SerializeToString()).decode()
            answer = handle(SimpleNamespace(body=encoded))
            return pb.OrchestratorResponse.FromString(base64.b64decode(answer))

        return ask

    worker: Any = TaskHubGrpcWorker()

    def run(context: Any, given: Any) -> Generator[Any, Any, Any]:
        return (yield from orchestrator(_Context(context, given)))

    worker._registry.add_named_orchestrator(orchestrator.__name__, run)

    def execute(request: pb.OrchestratorRequest) -> pb.OrchestratorResponse:
        answers: list[pb.OrchestratorResponse] = []
        stub = SimpleNamespace(CompleteOrchestratorTask=answers.append)
        worker._execute_orchestrator(request, stub, None)
        return answers[0]

    return execute


class _Context:
    """The part of the compatibility layer's context that the orchestrators use."""

    task_any = staticmethod(when_any)

    def __init__(self, context: Any, given: Any) -> None:
        self._context, self._given = context, given

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    @property
    def current_utc_datetime(self) -> datetime:
        return self._context.current_utc_datetime.replace(tzinfo=UTC)

    def get_input(self) -> Any:
        return self._given

    def call_activity(self, name: str, given: Any) -> Any:
        return self._context.call_activity(name, input=given)

    def call_sub_orchestrator(self, name: str, given: Any, instance_id: str) -> Any:
        return self._context.call_sub_orchestrator(name, input=given, instance_id=instance_id)
