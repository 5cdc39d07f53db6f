from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator

import pytest

from tests.local.span_receiver import Spans, receiving
from trainers.tracing import traced

TRACE, RUN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def received() -> Generator[tuple[str, Spans]]:
    """The address of a receiver, and what it received."""
    with receiving() as receiver:
        yield receiver


def environment(endpoint: str) -> dict[str, str]:
    return {"TRACEPARENT": f"00-{TRACE}-{RUN}-01", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}


def test_a_training_has_a_span_below_its_run(received: tuple[str, Spans]) -> None:
    endpoint, spans = received
    with traced("train", environment(endpoint), {"landfall.job.ranks": 2}):
        pass
    (span,) = spans.values()
    assert (span["traceId"], span["parentSpanId"], span["name"]) == (TRACE, RUN, "train")


def test_a_training_that_fails_says_so_on_its_span(
    received: tuple[str, Spans],
) -> None:
    endpoint, spans = received
    with (
        pytest.raises(ValueError, match="boom"),
        traced("train", environment(endpoint), {}),
    ):
        raise ValueError("boom")
    (span,) = spans.values()
    assert span["status"]["code"] == "STATUS_CODE_ERROR"


def test_with_torch_alone_a_training_runs_and_sends_nothing() -> None:
    program = """
import sys
sys.modules["opentelemetry"] = None
from trainers.tracing import traced
with traced("train", {"TRACEPARENT": "x", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, {}):
    print("ran")
"""
    answer = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert answer.stdout == "ran\n"


def test_without_a_trace_nothing_is_imported() -> None:
    program = """
import sys
from trainers.tracing import traced
with traced("train", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, {}):
    print("opentelemetry" in sys.modules)
"""
    answer = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert answer.stdout == "False\n"
