"""Signals of Azure ML's monitors: finding their pipeline, and starting a landing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from handlers.landing.monitor_signals import (
    THRESHOLD_TAG,
    MonitorSignal,
    parse_signal,
    start_retraining,
)
from orchestrations.contracts.landing import LandingPhase, LandingRequest, LandingStatus
from tests.fakes.durable_client import TaskHub
from tests.unit.orchestrations.examples import PIPELINE, with_rules

PIPELINES = ("digits", "digits-live", "shapes")
FAILED = "has failed due to one or more features violating metric thresholds"


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
