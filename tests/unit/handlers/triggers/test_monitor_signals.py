"""Signals of Azure ML's monitors: finding their pipeline, and starting a landing."""

from __future__ import annotations

from typing import Any

import pytest

from handlers.triggers.monitor_signals import (
    THRESHOLD_TAG,
    MonitorSignal,
    parse_signal,
    start_retraining,
)
from orchestrations.contracts.landing import LandingRequest
from tests.unit.handlers.durable_fake import TaskHub
from tests.unit.orchestrations.examples import PIPELINE

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
        pipeline=PIPELINE,
        opened_by="request",
        settled=True,
        reason=f"digits_data_drift {FAILED}",
    )


async def test_no_landing_starts_while_a_batch_is_active() -> None:
    hub: Any = TaskHub()
    hub.add("landing-digits", "landing")
    assert not await start_retraining(hub, PIPELINE, a_signal())
    assert hub.started == []
