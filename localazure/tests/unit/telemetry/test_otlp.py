from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from localazure.telemetry.otlp import InvalidExport, ReceivedSpan, parse_spans, to_trace
from localazure.telemetry.store import KEPT_SECONDS, Store

TRACE, SPAN, PARENT = bytes(range(16)), bytes(range(1, 9)), bytes(range(2, 10))


def export(
    *, trace: bytes = TRACE, span: bytes = SPAN, name: str = "run digits", service: str = "app"
) -> bytes:
    request = ExportTraceServiceRequest()
    sender = request.resource_spans.add()
    attribute = sender.resource.attributes.add(key="service.name")
    attribute.value.string_value = service
    scope = sender.scope_spans.add()
    scope.scope.name = "landfall"
    sent = scope.spans.add(
        trace_id=trace,
        span_id=span,
        parent_span_id=PARENT,
        name=name,
        start_time_unix_nano=1,
        end_time_unix_nano=2,
    )
    sent.links.add(trace_id=TRACE[::-1], span_id=SPAN)
    return request.SerializeToString()


def test_ids_are_hex_in_json() -> None:
    (received,) = parse_spans(export())
    assert (received.trace_id, received.span_id) == (TRACE.hex(), SPAN.hex())
    body = json.loads(received.body)
    assert body["traceId"] == TRACE.hex()
    assert body["parentSpanId"] == PARENT.hex()
    assert body["links"] == [{"traceId": TRACE[::-1].hex(), "spanId": SPAN.hex()}]


@pytest.mark.parametrize(("trace", "span"), [(b"", SPAN), (bytes(16), SPAN), (TRACE, b"1234")])
def test_a_span_without_valid_ids_is_refused(trace: bytes, span: bytes) -> None:
    with pytest.raises(InvalidExport, match="an id must be"):
        parse_spans(export(trace=trace, span=span))


@given(st.binary())
def test_other_bytes_are_refused_or_hold_no_valid_span(body: bytes) -> None:
    try:
        spans = parse_spans(body)
    except InvalidExport:
        return
    assert all(len(span.trace_id) == 32 for span in spans)


def test_a_trace_is_grouped_by_who_sent_it() -> None:
    spans = [
        *parse_spans(export()),
        *parse_spans(export(span=PARENT)),
        *parse_spans(export(service="trainer")),
    ]
    app, trainer = to_trace(spans)["resourceSpans"]
    assert len(app["scopeSpans"][0]["spans"]) == 2
    assert trainer["resource"]["attributes"][0]["value"] == {"stringValue": "trainer"}


def stored(path: Path, *exports: tuple[bytes, float], kept_spans: int = 100) -> list[ReceivedSpan]:
    """The kept spans of the trace after exports, each at its time."""

    async def keep() -> list[ReceivedSpan]:
        store = Store(path, kept_spans)
        try:
            for body, now_seconds in exports:
                await store.keep(parse_spans(body), now_seconds)
            return store.trace(TRACE.hex())
        finally:
            store.close()

    return asyncio.run(keep())


def test_a_span_that_comes_again_is_kept_once_also_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "spans.db"
    stored(file, (export(name="first"), 1.0))
    (span,) = stored(file, (export(name="second"), 2.0))
    assert json.loads(span.body)["name"] == "second"


def test_spans_go_after_a_week_and_the_oldest_when_there_are_too_many(tmp_path: Path) -> None:
    old, new = export(), export(span=PARENT)
    kept = stored(tmp_path / "age.db", (old, 0.0), (new, KEPT_SECONDS + 1))
    assert [span.span_id for span in kept] == [PARENT.hex()]
    kept = stored(tmp_path / "number.db", (old, 0.0), (new, 1.0), kept_spans=1)
    assert [span.span_id for span in kept] == [PARENT.hex()]
