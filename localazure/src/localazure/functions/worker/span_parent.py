"""The parent of an app's spans: the trace context of its trigger, if an app setting asks for it.

As in the worker, PYTHON_ENABLE_OPENTELEMETRY does, and the app's packages include opentelemetry.
Here, unlike in the worker of Python 3.13, synchronous functions get it, too.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager
from typing import Final

from localazure.functions import logs
from localazure.functions.worker.context import TraceContext

_LOG = logging.getLogger(logs.HOST_LOGGER)
_SETTING: Final = "PYTHON_ENABLE_OPENTELEMETRY"

SpanParent = Callable[[TraceContext], AbstractContextManager[object]]
"""Makes a trace context the parent of the spans that the current task starts."""


def span_parent_by(settings: Mapping[str, str]) -> SpanParent:
    """What sets the parent of spans; nothing does without the setting."""
    if settings.get(_SETTING, "").lower().strip() not in {"1", "true", "t", "yes", "y"}:
        return contextlib.nullcontext
    try:
        from opentelemetry import context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError as error:
        _LOG.warning("%s has no effect: %s; add opentelemetry-api to the app", _SETTING, error)
        return contextlib.nullcontext
    propagator = TraceContextTextMapPropagator()

    @contextlib.contextmanager
    def span_parent(trace: TraceContext) -> Generator[None]:
        carrier = {"traceparent": trace.trace_parent, "tracestate": trace.trace_state}
        token = context.attach(propagator.extract(carrier))
        try:
            yield
        finally:
            context.detach(token)

    return span_parent
