"""Which operations of an entity run together, and locks."""

from __future__ import annotations

from typing import Any

from durabletask.internal import orchestrator_service_pb2 as pb

from harness.durable_records import NOW
from localazure.functions.durable.engine.history import Event, EventType
from localazure.functions.durable.protocol.entity_batches import conclude, lock, next_batch
from localazure.functions.durable.store.records import Entity, Message

FREE = Entity(entity_id="@e@1", state_json="1", updated_at=NOW)
LOCKED = Entity(entity_id="@e@1", state_json="1", updated_at=NOW, locked_by="holder")


def message(kind: EventType, parent: str | None = None, **fields: Any) -> Message:
    event: Event = {"EventType": int(kind), "ParentInstanceId": parent, **fields}
    return Message(target="@e@1", event=event)


def call(parent: str) -> Message:
    return message(
        EventType.ENTITY_OPERATION_CALLED,
        parent,
        Operation="get",
        RequestId=f"of {parent}",
        Input=None,
        ParentExecutionId="x",
    )


SIGNAL = message(EventType.ENTITY_OPERATION_SIGNALED, Operation="add", RequestId="s", Input=None)
UNLOCK = message(EventType.ENTITY_UNLOCK_SENT, "holder", CriticalSectionId="c")


def request(position: int) -> Message:
    return message(
        EventType.ENTITY_LOCK_REQUESTED,
        "holder",
        CriticalSectionId="c",
        LockSet=["@e@1", "@e@2"],
        Position=position,
    )


def test_operations_run_together_up_to_a_lock() -> None:
    before, after = call("a"), call("b")
    waiting = [before, SIGNAL, request(0), after]
    assert next_batch(FREE, waiting) == [before, SIGNAL]
    assert next_batch(FREE, waiting[2:]) == waiting[2:3]


def test_large_inputs_run_in_several_batches() -> None:
    large = message(
        EventType.ENTITY_OPERATION_SIGNALED, Operation="add", RequestId="l", Input=600_000 * "x"
    )
    assert next_batch(FREE, [SIGNAL, large, large]) == [SIGNAL, large]


def test_a_locked_entity_runs_only_operations_of_the_holder() -> None:
    mine, another = call("holder"), call("another")
    assert next_batch(LOCKED, [SIGNAL, another]) == []
    assert next_batch(LOCKED, [SIGNAL, mine, UNLOCK]) == [mine]
    assert next_batch(LOCKED, [SIGNAL, UNLOCK]) == [UNLOCK]
    assert lock(LOCKED, UNLOCK, NOW).entity.locked_by is None


def test_a_lock_request_goes_on_to_the_next_entity_and_then_to_its_sender() -> None:
    first = lock(FREE, request(0), NOW)
    assert first.entity.locked_by == "holder"
    ((target, event, _),) = first.messages
    assert (target, event["Position"]) == ("@e@2", 1)
    ((target, event, _),) = lock(FREE, request(1), NOW).messages
    assert target == "holder"
    assert event["EventType"] == EventType.ENTITY_LOCK_GRANTED
    assert event["CriticalSectionId"] == "c"


def test_a_batch_that_failed_leaves_the_state_and_answers_calls() -> None:
    failure = pb.TaskFailureDetails(errorType="E", errorMessage="m")
    result = pb.EntityBatchResult(failureDetails=failure)
    effects = conclude(FREE, [SIGNAL, call("a")], result, NOW)
    assert effects.entity == FREE
    ((target, event, execution_id),) = effects.messages
    assert (target, execution_id) == ("a", "x")
    assert event["EventType"] == EventType.ENTITY_OPERATION_FAILED
    assert event["FailureDetails"] == {"errorType": "E", "errorMessage": "m"}


def test_an_operation_without_a_result_failed() -> None:
    effects = conclude(FREE, [call("a")], pb.EntityBatchResult(), NOW)
    assert effects.entity.state_json is None
    ((_, event, _),) = effects.messages
    assert "no result" in event["FailureDetails"]["errorMessage"]
