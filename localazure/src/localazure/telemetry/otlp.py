"""OTLP over HTTP: spans out of protobuf, traces into JSON. Pure.

https://opentelemetry.io/docs/specs/otlp/#otlphttp. In JSON, ids are hex and not base64:
https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

TRACE_ID_BYTES = 16
SPAN_ID_BYTES = 8


class InvalidExport(Exception):
    """A request is not what OTLP says."""


@dataclass(frozen=True, kw_only=True)
class ReceivedSpan:
    """A span as it is kept."""

    trace_id: str
    """32 digits of lower-case hex."""
    span_id: str
    """16 digits of lower-case hex."""
    resource: str
    """Its sender: `Resource` as JSON, with sorted keys."""
    scope: str
    """The library that made it: `InstrumentationScope` as JSON, with sorted keys."""
    body: str
    """`Span` as JSON."""


def parse_spans(body: bytes) -> list[ReceivedSpan]:
    """The spans of an `ExportTraceServiceRequest`.

    Raises:
        InvalidExport: it is none, or a span has no valid ids.
    """
    request = ExportTraceServiceRequest()
    try:
        request.ParseFromString(body)
    except DecodeError as error:
        raise InvalidExport(f"the body is not an ExportTraceServiceRequest: {error}") from error
    return [
        _received(span, _json(each.resource), _json(group.scope))
        for each in request.resource_spans
        for group in each.scope_spans
        for span in group.spans
    ]


def to_trace(spans: Iterable[ReceivedSpan]) -> dict[str, Any]:
    """`TracesData` as JSON: the spans by what sent them, and by the library that made them."""
    found: dict[str, dict[str, list[Any]]] = {}
    for span in spans:
        scopes = found.setdefault(span.resource, {})
        scopes.setdefault(span.scope, []).append(json.loads(span.body))
    return {
        "resourceSpans": [
            {
                "resource": json.loads(resource),
                "scopeSpans": [
                    {"scope": json.loads(scope), "spans": group} for scope, group in scopes.items()
                ],
            }
            for resource, scopes in found.items()
        ]
    }


def _received(span: Any, resource: str, scope: str) -> ReceivedSpan:
    trace_id, span_id = _id(span.trace_id, TRACE_ID_BYTES), _id(span.span_id, SPAN_ID_BYTES)
    document: dict[str, Any] = MessageToDict(span) | {"traceId": trace_id, "spanId": span_id}
    if span.parent_span_id:
        document["parentSpanId"] = _id(span.parent_span_id, SPAN_ID_BYTES)
    for link, written in zip(span.links, document.get("links", []), strict=True):
        written["traceId"] = _id(link.trace_id, TRACE_ID_BYTES)
        written["spanId"] = _id(link.span_id, SPAN_ID_BYTES)
    return ReceivedSpan(
        trace_id=trace_id,
        span_id=span_id,
        resource=resource,
        scope=scope,
        body=json.dumps(document),
    )


def _id(value: bytes, size: int) -> str:
    if len(value) != size or not any(value):
        raise InvalidExport(f"an id must be {size} bytes and not all zero, found {value.hex()!r}")
    return value.hex()


def _json(message: Message) -> str:
    return json.dumps(MessageToDict(message), sort_keys=True)
