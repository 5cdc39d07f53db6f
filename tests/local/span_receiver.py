"""An OTLP receiver (http/protobuf), as OpenTelemetry's exporters and the trainer call it."""

from __future__ import annotations

import gzip
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.local.http_server import JsonHandler, serving

Spans = dict[str, dict[str, Any]]
"""Span id → `Span` as JSON, with ids in hex."""


@contextmanager
def receiving() -> Generator[tuple[str, Spans]]:
    """The address of a receiver, and the spans that it has received."""
    spans: Spans = {}

    class Receiver(JsonHandler):
        def do_POST(self) -> None:  # noqa: N802 - the base's name
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if self.path == "/v1/traces":
                spans.update((span["spanId"], span) for span in _spans(body))
            self.answer(200, {})

    with serving(Receiver) as url:
        yield url, spans


def _spans(body: bytes) -> Generator[dict[str, Any]]:
    for sender in ExportTraceServiceRequest.FromString(body).resource_spans:
        for scope in sender.scope_spans:
            for span in scope.spans:
                ids = {"traceId": span.trace_id.hex(), "spanId": span.span_id.hex()}
                yield MessageToDict(span) | ids | {"parentSpanId": span.parent_span_id.hex()}
