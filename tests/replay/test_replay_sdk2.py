"""The orchestrators take the recorded steps on azure-functions-durable 2, too."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace

import durabletask.internal.orchestrator_service_pb2 as pb
import pytest

from localazure.functions.durable.engine.history import EventType
from localazure.functions.durable.protocol.history_messages import to_message
from tests.replay.durable_task_orchestrator import as_version_2, create
from tests.replay.recording import ORCHESTRATORS, STEP_EVENTS, Document, Recording, load_all, split

HANDLES = {name: create(each) for name, each in ORCHESTRATORS.items()}
STEP_OF_ACTION = {
    "scheduleTask": EventType.TASK_SCHEDULED,
    "createSubOrchestration": EventType.SUB_ORCHESTRATION_INSTANCE_CREATED,
    "createTimer": EventType.TIMER_CREATED,
}


@pytest.mark.parametrize("recording", load_all(), ids=lambda each: each.name)
def test_every_episode_takes_the_recorded_steps(recording: Recording) -> None:
    """durabletask itself compares the steps of the past: an episode that differs fails."""
    history = [as_version_2(event) for event in recording.trigger["history"]]
    steps = list(_steps_after_episodes(history))
    for number, (past, arrived) in enumerate(split(history)):
        request = pb.OrchestratorRequest(
            instanceId=recording.trigger["instanceId"],
            pastEvents=map(to_message, past),
            newEvents=map(to_message, arrived),
        )
        encoded = base64.b64encode(request.SerializeToString()).decode()
        answered = HANDLES[recording.orchestrator](SimpleNamespace(body=encoded))
        if not isinstance(answered, str):  # 2.0.0rc3's are `async def`
            answered = asyncio.run(answered)
        answer = pb.OrchestratorResponse.FromString(base64.b64decode(answered))
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
