"""The receiver as a separate process, with OpenTelemetry's exporter as its client."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

import requests
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from harness.part_process import PartProcess
from localazure.runtime.environment import Environment


def test_spans_of_the_real_exporter_are_answered_also_after_kill_9(tmp_path: Path) -> None:
    environment = Environment.draw(tmp_path / "state", app=tmp_path)
    environment.save()
    with PartProcess("telemetry", environment.state) as part:
        provider = TracerProvider(shutdown_on_exit=False)
        exporter = OTLPSpanExporter(
            endpoint=f"{environment.otlp_endpoint}/v1/traces", compression=Compression.Gzip
        )
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        with provider.get_tracer("test").start_as_current_span("run") as span:
            trace = f"{span.get_span_context().trace_id:032x}"
        part.kill()
        provider.shutdown()
    with PartProcess("telemetry", environment.state):
        url = f"{environment.otlp_endpoint}/api/v3/traces/"
        answer = requests.get(url + trace, timeout=10).json()
        (found,) = answer["result"]["resourceSpans"][0]["scopeSpans"][0]["spans"]
        assert (found["name"], found["traceId"]) == ("run", trace)
        assert requests.get(url + "0" * 32, timeout=10).status_code == HTTPStatus.NOT_FOUND
        assert requests.get(url + "x", timeout=10).status_code == HTTPStatus.BAD_REQUEST
        refused = requests.post(f"{environment.otlp_endpoint}/v1/traces", json={}, timeout=10)
        assert refused.status_code == HTTPStatus.UNSUPPORTED_MEDIA_TYPE
        malformed = requests.post(
            f"{environment.otlp_endpoint}/v1/traces",
            data=b"no protobuf",
            headers={"Content-Type": "application/x-protobuf"},
            timeout=10,
        )
        assert malformed.status_code == HTTPStatus.BAD_REQUEST
