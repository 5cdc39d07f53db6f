"""What an app's functions are asked and answer, without an SDK."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import durabletask.internal.orchestrator_service_pb2 as pb
import pytest
from google.protobuf.message import Message

from localazure.functions.durable.engine.instance import Execution
from localazure.functions.durable.engine.invocation import FunctionFailed, KnownFunctions
from localazure.functions.durable.options import DurableOptions
from localazure.functions.durable.protocol.app_functions_worker import AppFunctionsWorker
from localazure.functions.durable.protocol.history_messages import text
from localazure.functions.durable.runtime.app_functions import AppFunctions
from localazure.functions.durable.runtime.hub_settings import HubSettings
from localazure.functions.durable.store.records import Entity
from localazure.functions.durable.store.records import Message as Mail

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ADD = pb.OrchestratorResponse(actions=[pb.OrchestratorAction(id=3)])


def encoded(message: Message) -> str:
    return base64.b64encode(message.SerializeToString()).decode()


def worker(answer: Callable[[str], str | None], **options: Any) -> AppFunctionsWorker:
    async def invoke(name: str, trigger: Any) -> str | None:
        assert name in {"Run", "Square", "Counter"}
        return answer(trigger)

    return AppFunctionsWorker(
        HubSettings(
            known=KnownFunctions(orchestrator=["Run"], activity=["Square"], entity=["Counter"]),
            options=DurableOptions.model_validate(options),
        ),
        AppFunctions(invoke=invoke, runs_twice=lambda _: True, signals_twice=lambda _: True),
    )


def execution(name: str = "run", version: str | None = None) -> Execution:
    return Execution(
        instance_id="i",
        execution_id="e",
        name=name,
        input_json=None,
        created_at=NOW,
        version=version,
    )


async def orchestrate(one: AppFunctionsWorker, given: Execution) -> list[pb.OrchestratorResponse]:
    return list(await one.orchestrate(given, pb.OrchestratorRequest(instanceId="i")))


async def test_an_orchestrator_gets_and_gives_messages_in_base64() -> None:
    def answer(trigger: str) -> str:
        request = pb.OrchestratorRequest.FromString(base64.b64decode(trigger))
        assert request.instanceId == "i"
        return encoded(ADD)

    assert await orchestrate(worker(answer), execution()) == [ADD]


@pytest.mark.parametrize(
    ("name", "answer", "message"),
    [
        ("run", "not base64!", "no valid OrchestratorResponse in base64"),
        ("run", "AAAA", "no valid OrchestratorResponse in base64"),
        ("other", "", "The function 'other' doesn't exist"),
    ],
)
async def test_what_is_no_answer_fails_the_orchestration(
    name: str, answer: str, message: str
) -> None:
    (response,) = await orchestrate(worker(lambda _: answer), execution(name))
    end = response.actions[0].completeOrchestration
    assert end.orchestrationStatus == pb.ORCHESTRATION_STATUS_FAILED
    assert message in end.failureDetails.errorMessage


async def test_an_instance_of_another_version_waits_or_fails() -> None:
    given = execution(version="2.0")
    rejecting = worker(lambda _: None, defaultVersion="1.0")
    assert await orchestrate(rejecting, given) == []
    failing = worker(lambda _: None, defaultVersion="1.0", versionFailureStrategy="Fail")
    (response,) = await orchestrate(failing, given)
    details = response.actions[0].completeOrchestration.failureDetails
    assert details.errorType == "VersionMismatch"


async def test_an_activity_gets_json_and_may_run_twice() -> None:
    calls: list[str] = []

    def answer(trigger: str) -> str:
        calls.append(trigger)
        return str(len(calls))

    result = await worker(answer).act(pb.ActivityRequest(name="square", input=text("4")))
    assert (result.result.value, calls) == ("2", ["4", "4"])
    await worker(answer).act(pb.ActivityRequest(name="square"))
    assert calls[2:] == ["null", "null"]


async def test_a_failed_activity_has_details() -> None:
    def answer(_: str) -> str:
        raise FunctionFailed("ValueError", "no", "the stack")

    details = (await worker(answer).act(pb.ActivityRequest(name="square"))).failureDetails
    found = (details.errorType, details.errorMessage, details.stackTrace.value)
    assert found == ("ValueError", "no", "the stack")


async def test_a_signal_may_be_delivered_twice_and_is_consumed_once() -> None:
    counted: list[int] = []

    def answer(trigger: str) -> str:
        request = pb.EntityBatchRequest.FromString(base64.b64decode(trigger))
        counted.append(len(request.operations))
        return encoded(pb.EntityBatchResult(entityState=text("7")))

    one = worker(answer)
    entity = Entity(entity_id="@counter@k", state_json=None, updated_at=NOW)
    event = one.signal(entity.entity_id, "add", "1")
    mail = [Mail(target=entity.entity_id, execution_id=None, event=event)]
    effects = await one.run_operations(entity, mail)
    assert effects is not None
    assert (counted, effects.consumed, effects.entity.state_json) == ([2], mail, "7")
