from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.functions import EventGridEvent
from hypothesis import given
from hypothesis import strategies as st

from handlers.landing.rejected_events import RejectedEvent
from handlers.operate import job_events
from handlers.operate.job_events import (
    THRESHOLD_TAG,
    MonitorSignal,
    check_workspace,
    handle_job_events,
    parse_job_event,
    parse_signal,
    start_retraining,
)
from handlers.platform.clients import Clients
from handlers.platform.event_envelope import EventEnvelope
from handlers.platform.settings import Settings
from orchestrations.contracts.landing import LandingPhase, LandingRequest, LandingStatus
from orchestrations.errors import InvalidEvent, InvalidSetting
from tests.fakes.durable_client import TaskHub
from tests.unit.orchestrations.examples import PIPELINE, with_rules

RUN = "digits-0123456789abcdef-1"
SETTINGS = {
    "AZUREML_SUBSCRIPTION_ID": "s1",
    "AZUREML_RESOURCE_GROUP": "rg",
    "AZUREML_WORKSPACE_NAME": "ws",
}
WORKSPACE = (
    "/subscriptions/S1/resourceGroups/Rg/providers/Microsoft.MachineLearningServices/workspaces/Ws"
)
EVENT = EventEnvelope(
    id="e1",
    type="Microsoft.MachineLearningServices.RunStatusChanged",
    source=WORKSPACE,
    subject=f"experiments/0000-1111/runs/{RUN}",
    time=datetime(2026, 11, 23, tzinfo=UTC),
    data={"experimentName": "digits", "runId": RUN, "runStatus": "Running"},
)
PIPELINES = ("digits", "digits-live", "shapes")
FAILED = "has failed due to one or more features violating metric thresholds"


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

    monkeypatch.setattr(job_events, "keep_rejected", keep)
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


def parse(**changes: Any) -> str:
    return parse_job_event(replace(EVENT, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "Microsoft.MachineLearningServices.RunCompleted"},
        {"type": "microsoft.machinelearningservices.runcompleted"},
        {"data": {"runId": RUN, "runTags": None, "new": [1]}, "subject": ""},
        {"data": {"RUNID": RUN}, "subject": ""},
        {"data": {}, "subject": f"Experiments/x/Runs/{RUN}"},
    ],
)
def test_the_data_name_the_run_or_else_the_subject_in_any_case(changes: dict[str, Any]) -> None:
    assert parse(**changes) == RUN


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "Microsoft.MachineLearningServices.ModelRegistered"},
        {"type": "Microsoft.Storage.BlobCreated"},
        {"data": {}, "subject": ""},
        {"data": None, "subject": ""},
        {"data": [RUN], "subject": ""},
        {"data": {"runId": 7}},
        {"data": {"runId": ""}},
        {"data": {"runId": "../x"}},
        {"data": {"runId": "a" * 256}},
        {"data": {"runId": f"{RUN}\n"}},
    ],
)
def test_anything_else_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidEvent, match="event e1"):
        parse(**changes)


@given(
    event_type=st.sampled_from(["Microsoft.MachineLearningServices.RunCompleted", "x"]),
    subject=st.text(),
    data=st.dictionaries(
        st.sampled_from(["runId", "RunID", "x"]),
        st.none() | st.text() | st.integers() | st.lists(st.text()),
    ),
)
def test_nothing_but_a_name_or_an_error_comes_out(
    event_type: str, subject: str, data: dict[str, Any]
) -> None:
    with contextlib.suppress(InvalidEvent):
        run = parse(type=event_type, subject=subject, data=data)
        assert run.isascii()
        assert run.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize("topic", [WORKSPACE, WORKSPACE.lower(), "", "azure-ml"])
def test_the_workspaces_own_events_and_nameless_ones_pass(topic: str) -> None:
    check_workspace(replace(EVENT, source=topic), Settings(SETTINGS))


@pytest.mark.parametrize(
    "topic",
    [WORKSPACE + "2", WORKSPACE.replace("Rg", "other"), WORKSPACE.replace("S1", "S2")],
)
def test_another_workspaces_event_is_refused(topic: str) -> None:
    with pytest.raises(InvalidEvent, match="is not workspace 'ws'"):
        check_workspace(replace(EVENT, source=topic), Settings(SETTINGS))


def data(text: str) -> dict[str, Any]:
    return {"runId": "monitor-1", "RunTags": {THRESHOLD_TAG: text}, "runStatus": "Failed"}


@pytest.mark.parametrize(
    ("text", "pipeline"),
    [
        (f"digits_data_drift {FAILED}", "digits"),
        (f"The signal 'digits-live_data_drift' {FAILED}.", "digits-live"),
        (f"digits {FAILED}", "digits"),
        (f"more-digits_drift {FAILED}", None),
        (f"digitsdrift {FAILED}", None),
        (f"digits-other_drift {FAILED}", None),
        ("", None),
    ],
)
def test_a_signal_is_of_the_pipeline_that_its_name_begins_with(
    text: str, pipeline: str | None
) -> None:
    signal = parse_signal("monitor-1", data(text), PIPELINES)
    assert (signal and signal.pipeline) == pipeline
    if signal is not None:
        assert signal.reason == text


@pytest.mark.parametrize("given", [None, [], {"runTags": None}, {"runTags": {"colour": "red"}}])
def test_job_events_contain_no_signal(given: object) -> None:
    assert parse_signal("digits-aa-1", given, PIPELINES) is None


def a_signal() -> MonitorSignal:
    signal = parse_signal("monitor-1", data(f"digits_data_drift {FAILED}"), PIPELINES)
    assert signal is not None
    return signal


async def test_a_signal_starts_one_landing_with_its_reason() -> None:
    hub: Any = TaskHub()
    assert await start_retraining(hub, PIPELINE, a_signal())
    assert not await start_retraining(hub, PIPELINE, a_signal()), "the same run of the monitor"
    (instance,) = hub.started
    assert hub.documents[instance]["name"] == "landing"
    assert LandingRequest.from_dict(hub.documents[instance]["input"]) == LandingRequest(
        pipeline=PIPELINE.name,
        opened_by="request",
        reason=f"digits_data_drift {FAILED}",
    )


async def test_the_signal_of_a_zone_whose_partitions_are_batches_waits_for_none() -> None:
    hub: Any = TaskHub()
    daily = with_rules(PIPELINE, source={"partitions": "date=%Y-%m-%d", "batch": "partition"})
    assert await start_retraining(hub, daily, a_signal())
    assert LandingRequest.from_dict(hub.documents[hub.started[0]]["input"]).settled


@pytest.mark.parametrize("phase", [None, "settling", "training", "closing"])
async def test_nothing_starts_only_while_the_zone_trains(phase: LandingPhase | None) -> None:
    """Another batch may end as a duplicate, or be held: then it would answer no signal."""
    hub: Any = TaskHub()
    status = None
    if phase is not None:
        shown = LandingStatus(phase=phase, pipeline="digits", opened_at=datetime.now(UTC))
        status = shown.to_dict()
    hub.add("landing-digits", "landing", custom_status=status)
    assert await start_retraining(hub, PIPELINE, a_signal()) == (phase != "training")
    assert len(hub.started) == (phase != "training")
