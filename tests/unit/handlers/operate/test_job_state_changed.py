from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from azure.functions import EventGridEvent

from handlers.landing.rejected_events import RejectedEvent
from handlers.operate import job_state_changed
from handlers.operate.job_state_changed import handle_job_events
from handlers.platform.clients import Clients
from handlers.platform.settings import Settings
from orchestrations.errors import InvalidSetting
from tests.fakes.durable_client import TaskHub
from tests.unit.orchestrations.examples import PIPELINE

RUN = "digits-0123456789abcdef-1"
SETTINGS = {
    "AZUREML_SUBSCRIPTION_ID": "s1",
    "AZUREML_RESOURCE_GROUP": "rg",
    "AZUREML_WORKSPACE_NAME": "ws",
}


def an_event(**changes: Any) -> EventGridEvent:
    fields: dict[str, Any] = {
        "id": "e1",
        "topic": "/subscriptions/S1/resourceGroups/RG/providers/"
        "Microsoft.MachineLearningServices/workspaces/WS",
        "subject": f"experiments/x/runs/{RUN}",
        "event_type": "Microsoft.MachineLearningServices.RunCompleted",
        "event_time": datetime(2026, 11, 21, tzinfo=UTC),
        "data": {"runId": RUN},
        "data_version": "1",
    }
    return EventGridEvent(**fields | changes)


async def handle(hub: Any, event: EventGridEvent, settings: dict[str, str] | None = None) -> bool:
    clients = Clients(Settings(SETTINGS if settings is None else settings))
    pipelines = {"digits": PIPELINE}
    return await handle_job_events(clients, pipelines, hub, [event], now=datetime.now(UTC)) == 1


@pytest.fixture
def hub() -> TaskHub:
    hub = TaskHub()
    hub.add(RUN, "retraining")
    return hub


async def test_the_run_of_the_job_is_woken(hub: TaskHub) -> None:
    assert await handle(hub, an_event())
    assert await handle(hub, an_event(topic=None))
    assert hub.raised == [(RUN, "wake_up")] * 2


async def test_a_monitors_signal_starts_a_landing(hub: TaskHub) -> None:
    tags = {"azureml_modelmonitor_threshold_breached": "digits_drift has failed"}
    event = an_event(
        event_type="Microsoft.MachineLearningServices.RunStatusChanged",
        data={"runId": "monitor-1", "runTags": tags, "runStatus": "Failed"},
    )
    assert not await handle(hub, event), "no run was woken"
    (instance,) = hub.started
    assert hub.documents[instance]["input"]["reason"] == "digits_drift has failed"


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"topic": an_event().topic.replace("WS", "another")}, "other-workspace"),
        (
            {"event_type": "Microsoft.MachineLearningServices.ModelRegistered"},
            "unknown-job-event-type",
        ),
        ({"subject": "", "data": {}}, "no-run-named"),
        ({"subject": "", "data": None}, "no-run-named"),
    ],
)
async def test_an_event_that_is_not_understood_wakes_nobody_and_is_kept(
    hub: TaskHub, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], cause: str
) -> None:
    kept: list[RejectedEvent] = []

    def keep(_: object, events: list[RejectedEvent], *, at: datetime) -> None:
        assert at.tzinfo is UTC
        kept.extend(events)

    monkeypatch.setattr(job_state_changed, "keep_rejected", keep)
    monkeypatch.setattr(Clients, "records", None)
    assert not await handle(hub, an_event(**changes))
    assert hub.raised == []
    assert [(each.event_id, each.cause) for each in kept] == [("e1", cause)]


async def test_a_run_may_end_during_the_call() -> None:
    class EndingHub(TaskHub):
        async def raise_event(self, instance: str, event: str) -> None:
            self.documents[instance]["runtimeStatus"] = "Completed"
            await super().raise_event(instance, event)

    hub = EndingHub()
    hub.add(RUN, "retraining")
    assert not await handle(hub, an_event())


async def test_an_app_without_a_workspace_must_not_swallow_events(hub: TaskHub) -> None:
    with pytest.raises(InvalidSetting, match="AZUREML_SUBSCRIPTION_ID"):
        await handle(hub, an_event(), settings={})
