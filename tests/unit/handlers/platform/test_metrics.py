from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from handlers.platform.metrics import (
    INSTRUMENTS,
    Measurement,
    batch_measurements,
    run_measurements,
    unfinished_run_measurements,
)
from handlers.platform.settings import APP_FOLDER, Settings
from handlers.platform.telemetry import Telemetry
from orchestrations.contracts.base import Failure
from orchestrations.contracts.landing import BatchTrace
from tests.unit.handlers.platform.test_spans import batch_record, run_record

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def test_a_run_that_has_ended_is_counted_with_its_outcome_and_its_wait() -> None:
    failure = Failure(type="JobFailed", message="boom", permanent=False)
    took, waited = run_measurements(run_record("failed", error=failure))
    assert took.value == 40
    assert took.attributes == {
        "landfall.pipeline": "digits",
        "landfall.run.state": "failed",
        "error.type": "JobFailed",
    }
    assert (waited.instrument, waited.value) == ("landfall.run.wait.duration", 10)
    assert run_measurements(run_record("running")) == []


def test_a_batch_adds_how_long_it_took_to_settle() -> None:
    (settled,) = batch_measurements(batch_record(BatchTrace()))
    assert (settled.value, settled.attributes["landfall.batch.outcome"]) == (20, "started")
    assert batch_measurements(batch_record(None)) == []


def test_the_wait_age_is_that_of_the_longest_wait() -> None:
    def run(pipeline: str, state: str, seconds: int) -> dict[str, str]:
        since = (NOW - timedelta(seconds=seconds)).isoformat()
        return {"pipeline": pipeline, "state": state, "since": since}

    found = unfinished_run_measurements(
        [
            run("digits", "queued", 30),
            run("digits", "queued", 90),
            run("digits", "running", 500),
        ],
        ["digits", "other"],
        now=NOW,
    )
    values = {(each.instrument, *each.attributes.values()): each.value for each in found}
    assert values == {
        ("landfall.run.active", "digits", "queued"): 2,
        ("landfall.run.active", "digits", "running"): 1,
        ("landfall.run.wait.age", "digits"): 90,
        ("landfall.run.wait.age", "other"): 0,
    }


def test_every_instrument_is_sent_with_its_unit_and_documented() -> None:
    reader = InMemoryMetricReader()
    telemetry = Telemetry(Settings({}), metric_readers=[reader])
    telemetry.record([Measurement(name, 1.5, {"landfall.pipeline": "p"}) for name in INSTRUMENTS])
    data = reader.get_metrics_data()
    assert data is not None
    (sender,) = data.resource_metrics
    sent = {each.name: each.unit for each in sender.scope_metrics[0].metrics}
    assert sent == {name: each.unit for name, each in INSTRUMENTS.items()}
    page = (APP_FOLDER / "docs" / "tracing.md").read_text("utf-8")
    documented = re.findall(r"^\| `(landfall\.[\w.]+)` \| `?([^|`]+)`? \|", page, re.MULTILINE)
    assert {name: unit.strip() for name, unit in documented} == sent
