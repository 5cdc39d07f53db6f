"""The span that calls of the durable client are made below.

The SDK's `start_new` gives it to the host, which puts its own spans of the orchestration below it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from orchestrations.trace_context import HEADER


@contextlib.contextmanager
def below(traceparent: str | None) -> Generator[None]:
    """Make the span of a header the current one; changes nothing when it is None."""
    if traceparent is None:
        yield
        return
    # The Durable SDK has imported both already.
    from opentelemetry.context import attach, detach  # noqa: PLC0415 - only where something is traced
    from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 - likewise
        TraceContextTextMapPropagator,
    )

    token = attach(TraceContextTextMapPropagator().extract({HEADER: traceparent}))
    try:
        yield
    finally:
        detach(token)
