"""Set the current span, as the parent for calls of the durable client.

The SDK's `start_new` sends it to the host, which makes it the parent of the orchestration's spans.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from orchestrations.platform.trace_context import HEADER


@contextlib.contextmanager
def below(traceparent: str | None) -> Generator[None]:
    """Make the span of a `traceparent` the current one; does nothing if it is None."""
    if traceparent is None:
        yield
        return
    # The Durable SDK has imported both modules before.
    from opentelemetry.context import attach, detach  # noqa: PLC0415 - only where something is traced
    from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 - likewise
        TraceContextTextMapPropagator,
    )

    token = attach(TraceContextTextMapPropagator().extract({HEADER: traceparent}))
    try:
        yield
    finally:
        detach(token)
