"""Events of the engine as messages of the protocol, and back."""

from __future__ import annotations

from typing import Any

import pytest
from durabletask.internal import orchestrator_service_pb2 as pb
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st

from harness.durable_records import AT, an_execution
from localazure.functions.durable.engine import episode, history
from localazure.functions.durable.engine.history import Event, EventType
from localazure.functions.durable.engine.instance import Parent
from localazure.functions.durable.protocol.history_messages import (
    failure,
    from_fields,
    to_event,
    to_message,
)

texts = st.text(st.characters(codec="utf-8"), min_size=1)
optional = st.none() | texts
tags = st.none() | st.dictionaries(texts, texts, min_size=1)
ids = st.integers(0, 2**31 - 1)


def an_event(kind: EventType, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Event]:
    return st.fixed_dictionaries(
        {"EventType": st.just(int(kind)), "EventId": ids, "Timestamp": st.just(AT), **fields}
    )


EVENTS = st.one_of(
    an_event(EventType.TASK_SCHEDULED, Name=texts, Version=optional, Input=optional, Tags=tags),
    an_event(EventType.TASK_COMPLETED, TaskScheduledId=ids, Result=optional),
    an_event(EventType.TIMER_FIRED, TimerId=ids, FireAt=st.just(AT)),
    an_event(EventType.EVENT_RAISED, Name=texts, Input=optional),
    an_event(
        EventType.ENTITY_LOCK_REQUESTED,
        CriticalSectionId=texts,
        LockSet=st.lists(texts),
        Position=ids,
        ParentInstanceId=texts,
    ),
    an_event(
        EventType.TASK_FAILED,
        TaskScheduledId=ids,
        FailureDetails=st.fixed_dictionaries({"errorType": texts, "errorMessage": texts}),
    ),
)


@given(EVENTS)
def test_an_event_survives_the_way_to_a_worker_and_back(event: Event) -> None:
    wire = pb.HistoryEvent.FromString(to_message(event).SerializeToString())
    back = to_event(wire)
    assert history.parse_timestamp(back.pop("Timestamp")) == history.parse_timestamp(AT)
    given = {key: value for key, value in event.items() if value not in (None, [], 0, AT)}
    found = {key: value for key, value in back.items() if value not in (None, [], 0)}
    found.pop("FireAt", None)
    assert found == given


def test_every_event_of_the_engine_has_a_message() -> None:
    execution = an_execution(
        parent=Parent(instance_id="p", execution_id="pe", event_id=1), input_json="1"
    )
    events = [
        *episode.begin(execution, AT, started=False, messages=[]),
        history.execution_suspended(AT, "why"),
        history.execution_terminated(AT, '"why"'),
        history.sub_orchestration_failed(AT, 3, reason="no", details=""),
        history.generic_event(AT, "Rewind: why"),
        history.execution_completed(AT, status="Failed", result="no"),
        history.orchestrator_completed(AT),
    ]
    found = [MessageToDict(to_message(event)) for event in events]
    for one in found:
        del one["eventId"], one["timestamp"]
    assert found == [
        {"orchestratorStarted": {}},
        {
            "executionStarted": {
                "name": "orch",
                "input": "1",
                "orchestrationInstance": {"instanceId": "i", "executionId": "e"},
                "parentInstance": {"orchestrationInstance": {"instanceId": "p"}},
            }
        },
        {"executionSuspended": {"input": "why"}},
        {"executionTerminated": {"input": '"why"'}},
        {
            "subOrchestrationInstanceFailed": {
                "taskScheduledId": 3,
                "failureDetails": {"errorType": "DurableTaskScheduler", "errorMessage": "no"},
            }
        },
        {"executionRewound": {"reason": "why"}},
        {
            "executionCompleted": {
                "orchestrationStatus": "ORCHESTRATION_STATUS_FAILED",
                "result": "no",
            }
        },
        {"orchestratorCompleted": {}},
    ]


def test_a_property_that_is_no_json_is_left_out_with_the_others() -> None:
    details = pb.TaskFailureDetails(errorType="E", errorMessage="m")
    details.properties["n"].number_value = 1.0
    assert failure(details)["properties"] == {"n": 1.0}
    details.properties["n"].number_value = float("nan")
    found = failure(details)
    assert (found["errorType"], found["errorMessage"]) == ("E", "m")
    assert "properties" not in found


@pytest.mark.parametrize("position", [0, 1])
def test_a_step_that_is_a_message_knows_its_receiver(position: int) -> None:
    request = pb.EntityLockRequestedEvent(lockSet=["@a@x", "@a@y"], position=position)
    step = from_fields(EventType.ENTITY_LOCK_REQUESTED, AT, request, 4)
    assert history.message_of(step) == (request.lockSet[position], step)
