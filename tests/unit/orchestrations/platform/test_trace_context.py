from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrations.contracts.landing import BatchTrace, LandingRequest, RecordBatch
from orchestrations.contracts.runs import RunRequest
from orchestrations.contracts.training import RunInput
from orchestrations.landing.landing import landing
from orchestrations.names import landing_instance
from orchestrations.platform.trace_context import (
    TraceContext,
    batch_context,
    child_header,
    run_header,
)
from tests.unit.orchestrations.driver import START
from tests.unit.orchestrations.examples import run_request
from tests.unit.orchestrations.landing.simulated_zone import UNMARKED, Zone, land
from tests.unit.orchestrations.training.simulated_workspace import QUICK, Cluster

HEADER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
HEX = st.text("0123456789abcdef", min_size=1)
CONTEXTS = st.builds(
    TraceContext,
    HEX.map(lambda text: text[:32].rjust(32, "1")),
    HEX.map(lambda text: text[:16].rjust(16, "1")),
    st.booleans(),
)


@given(CONTEXTS)
def test_a_context_survives_its_header(context: TraceContext) -> None:
    assert TraceContext.parse(context.header) == context


@given(st.one_of(st.text(), st.integers(), st.none()))
def test_what_is_no_header_is_no_context(text: Any) -> None:
    found = TraceContext.parse(text)
    assert found is None or found.header[3:] == text[3:55]


@pytest.mark.parametrize(
    "broken",
    [
        HEADER.upper(),
        HEADER[:-3],
        HEADER + "-more",
        HEADER.replace("00-4", "ff-4"),
        "00-" + "0" * 32 + "-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-" + "0" * 16 + "-01",
    ],
)
def test_a_header_that_breaks_the_standard_is_none(broken: str) -> None:
    assert TraceContext.parse(broken) is None


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert TraceContext.parse(HEADER.replace("00-4", "01-4") + "-more") == TraceContext.parse(
        HEADER
    )


@given(CONTEXTS, st.lists(st.text(), min_size=1), st.lists(st.text(), min_size=1))
def test_names_and_only_names_make_spans(
    context: TraceContext, name: list[str], other: list[str]
) -> None:
    child = context.child(*name)
    assert child == context.child(*name)
    assert (child.trace_id, child.sampled) == (context.trace_id, context.sampled)
    assert TraceContext.parse(child.header) == child
    if "\0".join(name) != "\0".join(other):
        assert child != context.child(*other)


def test_nothing_is_traced_below_nothing() -> None:
    assert child_header(None, "run") is None
    assert child_header("nonsense", "run") is None
    assert batch_context("batch", None) is None


def test_a_batch_that_follows_another_begins_a_trace_and_keeps_the_decision_to_sample() -> None:
    unsampled = HEADER[:-1] + "0"
    first = batch_context("batch", BatchTrace(follows=unsampled))
    assert first is not None
    assert first.trace_id not in HEADER
    assert not first.sampled


# --- through the orchestrators --------------------------------------------------------------------


def traced_zone() -> tuple[Zone, list[RunRequest]]:
    requests: list[RunRequest] = []

    def keep(context: Any) -> Any:
        requests.append(RunInput.from_dict(context.get_input()).request)
        return (yield from zone.train(context))

    zone = Zone(retraining=keep)
    return zone, requests


def open_traced(zone: Zone, header: str) -> None:
    request = LandingRequest(
        pipeline=UNMARKED.name, opened_by="event", trace=BatchTrace(parent=header)
    ).to_dict()
    zone.driver.start(landing.__name__, landing_instance("digits"), request)


def test_a_batch_its_run_and_its_record_are_in_the_trace_of_what_opened_it() -> None:
    zone, requests = traced_zone()
    zone.driver.at(0.0, lambda: open_traced(zone, HEADER))
    land(zone, 1.0)
    (batch,) = zone.batches
    span = batch_context(batch.batch, BatchTrace(parent=HEADER))
    assert span is not None
    assert batch.trace == BatchTrace(parent=HEADER)
    assert batch.concluded_at is not None
    assert batch.concluded_at >= batch.dataset.frozen_at
    # Each replay of the episode computes the run's input again.
    assert {each.traceparent for each in requests} == {span.header}


def test_a_batch_that_follows_has_a_trace_of_its_own_that_leads_to_the_one_before() -> None:
    zone, requests = traced_zone()
    zone.driver.at(0.0, lambda: open_traced(zone, HEADER))
    land(zone, 1.0, 25.0)
    first, second = zone.batches
    before = batch_context(first.batch, BatchTrace(parent=HEADER))
    assert before is not None
    assert second.trace == BatchTrace(follows=before.header)
    traces = {str(each.traceparent)[3:35] for each in requests}
    assert len(traces) == 2


def test_what_is_not_traced_has_no_word_of_traces() -> None:
    zone, requests = traced_zone()
    land(zone, 1.0)
    (batch,) = zone.batches
    assert "trace" not in batch.to_dict()
    assert "concluded_at" not in batch.to_dict()
    assert RecordBatch.from_dict(batch.to_dict()) == batch
    assert all("traceparent" not in each.to_dict() for each in requests)
    cluster = Cluster(QUICK)
    cluster.run()
    assert not [name for name, each in cluster.calls if "traceparent" in str(each.to_dict())]


def test_every_effect_of_a_run_names_the_runs_span() -> None:
    cluster = Cluster(QUICK)
    request = run_request(1).model_copy(update={"traceparent": HEADER})
    run = f"digits-{request.dataset.version}-1"
    cluster.driver.start("retraining", run, RunInput(request=request).to_dict())
    cluster.driver.run()
    span = run_header(HEADER, run)
    assert span is not None
    assert [each.traceparent for each in cluster.requests("register_model")] == [span]
    told = cluster.requests("publish_notification")
    assert {each.notification.traceparent for each in told} == {span}
    assert {each.record.traceparent for each in cluster.requests("record_run")} == {HEADER}
    (submitted,) = cluster.requests("submit_job")
    assert submitted.request.traceparent == HEADER
    assert cluster.driver.now > START
