"""The OpenTelemetry span of a training, a child of the span of the run that submitted its job.

It is sent if the job has `TRACEPARENT` and `OTEL_EXPORTER_OTLP_ENDPOINT`, which Landfall sets, and
`opentelemetry-exporter-otlp-proto-http` is installed. A killed training sends none.
https://opentelemetry.io/docs/specs/otel/context/env-carriers/
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

PARENT = "TRACEPARENT"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
SEND_LIMIT_SECONDS = 5.0


@contextlib.contextmanager
def traced(
    name: str, environment: Mapping[str, str], attributes: Mapping[str, str | int]
) -> Generator[None]:
    """Send a span for the block. An exception is recorded on the span and propagates."""
    provider = _provider(environment)
    if provider is None:
        yield
        return
    from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 - may be missing
        TraceContextTextMapPropagator,
    )

    parent = TraceContextTextMapPropagator().extract({"traceparent": environment[PARENT]})
    tracer = provider.get_tracer(__name__)
    try:
        with tracer.start_as_current_span(name, context=parent, attributes=dict(attributes)):
            yield
    finally:
        provider.shutdown()  # sends the span: the process ends without exit handlers


def _provider(environment: Mapping[str, str]) -> TracerProvider | None:
    """Create the exporter to the environment's endpoint; None if it is not configured."""
    if not (environment.get(PARENT) and environment.get(ENDPOINT)):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - may be missing
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource  # noqa: PLC0415 - likewise
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - likewise
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - likewise
    except ImportError:
        return None
    resource = Resource.create({SERVICE_NAME: environment.get("OTEL_SERVICE_NAME") or "trainer"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    endpoint = f"{environment[ENDPOINT].rstrip('/')}/v1/traces"
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=SEND_LIMIT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
