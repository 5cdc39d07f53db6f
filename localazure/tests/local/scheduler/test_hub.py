"""A task hub, with a worker that answers as no SDK does."""

# The test looks into the memory of the engine.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import durabletask.internal.orchestrator_service_pb2 as pb
import pytest
from google.protobuf.wrappers_pb2 import StringValue

from harness.waiting import eventually
from localazure.functions.durable.engine.instance import Status
from localazure.functions.durable.runtime.activities import ActivityRunner
from localazure.scheduler.hubs import Hub
from localazure.scheduler.work_items import ProtocolConnection


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncGenerator[Hub]:
    hub = Hub(tmp_path / "hub.db")
    yield hub
    await hub.close()


def schedule(event_id: int) -> pb.OrchestratorAction:
    return pb.OrchestratorAction(id=event_id, scheduleTask=pb.ScheduleTaskAction(name="run"))


def complete(**fields: Any) -> pb.OrchestratorAction:
    return pb.OrchestratorAction(
        id=9, completeOrchestration=pb.CompleteOrchestrationAction(**fields)
    )


DONE = complete(
    orchestrationStatus=pb.ORCHESTRATION_STATUS_COMPLETED, result=StringValue(value="1")
)
CONTINUED = complete(orchestrationStatus=pb.ORCHESTRATION_STATUS_CONTINUED_AS_NEW)


async def test_an_answer_in_parts_and_activities_that_nobody_awaits(hub: Hub) -> None:
    worker = hub.items.connect(ProtocolConnection(pb.GetWorkItemsRequest()))
    instance_id = await hub.start("orchestrator")
    episode = await worker.outbox.get()
    assert episode is not None
    for answer in (
        pb.OrchestratorResponse(actions=[schedule(1)], isPartial=True),
        pb.OrchestratorResponse(actions=[schedule(2), DONE]),
    ):
        hub.items.complete(episode.completionToken, answer, is_partial=answer.isPartial)
    instance = await hub.reached(instance_id)
    assert (instance.status, instance.output) == (Status.COMPLETED, "1")
    for task_id in (1, 2):
        item = await worker.outbox.get()
        assert item is not None
        assert item.activityRequest.taskId == task_id
        hub.items.complete(item.completionToken, pb.ActivityResponse())
    activities = hub.dispatcher.activities
    assert isinstance(activities, ActivityRunner)
    await eventually(lambda: not activities._scheduled and not activities._ended)
    await eventually(lambda: not hub.dispatcher.mail.targets())
    assert not hub.items._given
    assert not hub.items._waiting
    assert not worker.items


async def test_an_action_that_is_not_known_fails_the_orchestration(hub: Hub) -> None:
    worker = hub.items.connect(ProtocolConnection(pb.GetWorkItemsRequest()))
    instance_id = await hub.start("orchestrator")
    episode = await worker.outbox.get()
    assert episode is not None
    action = pb.OrchestratorAction(rewindOrchestration=pb.RewindOrchestrationAction())
    hub.items.complete(episode.completionToken, pb.OrchestratorResponse(actions=[action]))
    instance = await hub.reached(instance_id)
    assert instance.status is Status.FAILED
    assert "no action rewindOrchestration" in str(instance.output)


@pytest.mark.parametrize("recurse", [True, False])
async def test_an_orchestrator_terminates_another(hub: Hub, *, recurse: bool) -> None:
    worker = hub.items.connect(ProtocolConnection(pb.GetWorkItemsRequest()))

    async def answer(*actions: pb.OrchestratorAction) -> pb.OrchestratorRequest:
        episode = await worker.outbox.get()
        assert episode is not None
        hub.items.complete(episode.completionToken, pb.OrchestratorResponse(actions=actions))
        return episode.orchestratorRequest

    await hub.start("orchestrator", instance_id="other")
    create = pb.CreateSubOrchestrationAction(name="orchestrator", instanceId="below")
    await answer(pb.OrchestratorAction(id=1, createSubOrchestration=create))
    await answer()  # of the instance below
    await hub.start("orchestrator", instance_id="one")
    reason = StringValue(value='"enough"')
    await answer(
        *(
            pb.OrchestratorAction(
                id=number,
                terminateOrchestration=pb.TerminateOrchestrationAction(
                    instanceId=target, reason=reason, recurse=recurse
                ),
            )
            for number, target in enumerate(("other", "missing", "@entity@a"))
        ),
        schedule(3),
    )
    other = await hub.reached("other")
    assert (other.status, other.output) == (Status.TERMINATED, '"enough"')
    if recurse:
        assert (await hub.reached("below")).output == '"enough"'
    else:
        assert hub.instance("below").status is Status.RUNNING
    activity = await worker.outbox.get()
    assert activity is not None
    hub.items.complete(activity.completionToken, pb.ActivityResponse())
    # The history of the one has only what its next replay must find.
    past = (await answer(DONE)).pastEvents
    assert [event.WhichOneof("eventType") for event in past] == [
        "orchestratorStarted",
        "executionStarted",
        "taskScheduled",
        "orchestratorCompleted",
    ]
    assert (await hub.reached("one")).status is Status.COMPLETED
    assert not hub.store.inbox()


async def test_a_continued_orchestration_keeps_its_tags_and_takes_the_new_version(
    hub: Hub,
) -> None:
    worker = hub.items.connect(ProtocolConnection(pb.GetWorkItemsRequest()))
    instance_id = await hub.start("orchestrator", opening_json='{"Tags": {"a": "b"}}')
    again = complete(
        orchestrationStatus=pb.ORCHESTRATION_STATUS_CONTINUED_AS_NEW,
        newVersion=StringValue(value="2"),
    )
    for action in (again, DONE):
        episode = await worker.outbox.get()
        assert episode is not None
        start = episode.orchestratorRequest.newEvents[1].executionStarted
        assert start.tags == {"a": "b"}
        assert start.version.value == ("" if action is again else "2")
        hub.items.complete(episode.completionToken, pb.OrchestratorResponse(actions=[action]))
    assert (await hub.reached(instance_id)).execution.version == "2"


@pytest.mark.parametrize(
    ("ending", "items"), [(DONE, 1), (CONTINUED, 2)], ids=["completed", "continued as new"]
)
async def test_an_activity_that_nobody_awaits_outlives_the_scheduler(
    tmp_path: Path, ending: pb.OrchestratorAction, items: int
) -> None:
    file = tmp_path / "lasting.db"
    first = Hub(file)
    worker = first.items.connect(ProtocolConnection(pb.GetWorkItemsRequest()))
    await first.start("orchestrator")
    episode = await worker.outbox.get()
    assert episode is not None
    answer = pb.OrchestratorResponse(actions=[schedule(1), ending])
    first.items.complete(episode.completionToken, answer)
    await eventually(lambda: len(first.store.activities()) == 1)
    await first.close()
    second = Hub(file)
    worker = second.items.connect(ProtocolConnection(pb.GetWorkItemsRequest()))
    for _ in range(items):
        item = await worker.outbox.get()
        assert item is not None
        is_activity = item.HasField("activityRequest")
        end = pb.ActivityResponse() if is_activity else pb.OrchestratorResponse(actions=[DONE])
        second.items.complete(item.completionToken, end)
    await eventually(lambda: not second.store.activities())
    assert not second.store.inbox()
    await second.close()
