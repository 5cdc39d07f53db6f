from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from handlers.platform.settings import Settings
from handlers.platform.spans import Span
from handlers.platform.telemetry import Telemetry
from orchestrations.platform.trace_context import TraceContext

NOW = datetime(2026, 11, 22, 1, 2, 3, 456789, tzinfo=UTC)
ROOT = TraceContext.root("a test")


def span(context: TraceContext, parent: TraceContext | None, error: str | None = None) -> Span:
    return Span(
        context=context,
        parent=parent,
        name="run digits",
        kind="consumer",
        began_at=NOW,
        ended_at=NOW + timedelta(seconds=1),
        attributes={"landfall.run.attempt": 1},
        links=[TraceContext.root("another")],
        error=error,
    )


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def telemetry(exporter: InMemorySpanExporter) -> Telemetry:
    return Telemetry(Settings({"WEBSITE_SITE_NAME": "func-1"}), [exporter])


def test_a_span_is_sent_with_the_ids_and_times_that_it_was_given_each_time(
    telemetry: Telemetry, exporter: InMemorySpanExporter
) -> None:
    for _ in range(2):  # twice, as after a crash
        telemetry.send([span(ROOT, None), span(ROOT.child("a"), ROOT, error="JobFailed")])
    telemetry.flush()
    root, child, *again = exporter.get_finished_spans()
    assert [each.to_json() for each in again] == [root.to_json(), child.to_json()]
    assert root.context is not None
    assert f"{root.context.trace_id:032x}" == ROOT.trace_id
    assert f"{root.context.span_id:016x}" == ROOT.span_id
    assert root.parent is None
    assert root.start_time is not None
    assert root.start_time == round(NOW.timestamp() * 1e6) * 1000
    assert root.end_time == root.start_time + 1_000_000_000
    assert root.kind is SpanKind.CONSUMER
    assert root.attributes == {"landfall.run.attempt": 1}
    assert f"{root.links[0].context.trace_id:032x}" == TraceContext.root("another").trace_id
    assert root.resource.attributes["service.name"] == "func-1"
    assert child.parent is not None
    assert child.context is not None
    assert f"{child.parent.span_id:016x}" == ROOT.span_id
    assert f"{child.context.span_id:016x}" == ROOT.child("a").span_id
    assert child.status.status_code is StatusCode.ERROR


def test_a_trace_that_is_not_sampled_is_not_sent(
    telemetry: Telemetry, exporter: InMemorySpanExporter
) -> None:
    telemetry.send([span(TraceContext.root("a test", sampled=False), None)])
    telemetry.flush()
    assert exporter.get_finished_spans() == ()
