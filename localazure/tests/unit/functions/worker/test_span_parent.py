from __future__ import annotations

import sys

import pytest
from opentelemetry import trace

from localazure.functions.worker.context import TraceContext
from localazure.functions.worker.span_parent import span_parent_by

_TRACE = "0af7651916cd43dd8448eb211c80319c"


def parent_of(setting: str) -> str:
    """The trace of the current span, below the context of a request."""

    given = TraceContext(trace_parent=f"00-{_TRACE}-b7ad6b7169203331-01")
    with span_parent_by({"PYTHON_ENABLE_OPENTELEMETRY": setting})(given):
        return current()


def current() -> str:
    return format(trace.get_current_span().get_span_context().trace_id, "032x")


def test_the_caller_is_the_parent_if_the_setting_says_so() -> None:
    assert parent_of("true") == parent_of(" Yes ") == _TRACE
    assert parent_of("") == parent_of("on") == "0" * 32
    assert current() == "0" * 32


def test_an_app_without_opentelemetry_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace.propagation.tracecontext", None)
    assert parent_of("true") == "0" * 32
    assert "PYTHON_ENABLE_OPENTELEMETRY has no effect" in caplog.text
