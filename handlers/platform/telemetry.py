"""Send spans and metrics to an OTLP receiver, Application Insights, or both, by the settings.

Without such a setting nothing is imported or sent. A thread of the SDK sends the spans after one
second: no caller waits, and spans that a dying process has not sent yet are lost.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from handlers.platform.metrics import INSTRUMENTS, Measurement
from handlers.platform.settings import Settings
from handlers.platform.spans import Span
from orchestrations.contracts.landing import BatchTrace

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import SpanContext

    from orchestrations.platform.trace_context import TraceContext

SCOPE = "landfall"
SEND_AFTER_MILLISECONDS = 1_000
# A receiver that hangs must not delay the end of the process.
SEND_LIMIT_SECONDS = 5.0


class Telemetry:
    """Exports spans and metrics to the receivers of the settings, or to the given exporters."""

    def __init__(
        self,
        settings: Settings,
        exporters: Sequence[SpanExporter] = (),
        *,
        metric_readers: Sequence[MetricReader] = (),
    ) -> None:
        self._settings = settings
        self._exporters = exporters
        self._metric_readers = metric_readers
        self._recorders: Mapping[str, Callable[[float, dict[str, str]], None]] = {}
        self._lock = threading.Lock()
        self._provider: TracerProvider | None = None
        self._context: contextvars.ContextVar[TraceContext] = contextvars.ContextVar("span")

    @property
    def is_on(self) -> bool:
        """Whether spans and metrics are sent."""
        given = bool(self._exporters or self._metric_readers)
        return given or self._settings.sends_telemetry

    def new_trace(self) -> BatchTrace | None:
        """A new trace for a batch that no event opens; None if nothing is sent."""
        return BatchTrace() if self.is_on else None

    def send(self, spans: Sequence[Span]) -> None:
        """Queue spans for sending, if their trace is sampled; returns at once."""
        sampled = [span for span in spans if span.context.sampled]
        if not self.is_on or not sampled:
            return
        with self._lock:
            self._provider = self._provider or self._make_provider()
        for span in sampled:
            self._send(self._provider, span)

    def record(self, measurements: Sequence[Measurement]) -> None:
        """Add values to metrics, which are sent once a minute."""
        if not self.is_on or not measurements:
            return
        with self._lock:
            self._recorders = self._recorders or _recorders(self._make_meter())
            for each in measurements:
                self._recorders[each.instrument](each.value, dict(each.attributes))

    def flush(self) -> None:
        """Send the queued spans; waits up to `SEND_LIMIT_SECONDS`."""
        if self._provider is not None:
            self._provider.force_flush(int(SEND_LIMIT_SECONDS * 1000))

    def _send(self, provider: TracerProvider, span: Span) -> None:
        from opentelemetry.trace import (  # noqa: PLC0415 - only where it is used
            INVALID_SPAN,
            Link,
            NonRecordingSpan,
            SpanKind,
            StatusCode,
            set_span_in_context,
        )

        above = (
            INVALID_SPAN if span.parent is None else NonRecordingSpan(_span_context(span.parent))
        )
        token = self._context.set(span.context)
        try:
            sent = provider.get_tracer(SCOPE).start_span(
                span.name,
                context=set_span_in_context(above),
                kind=SpanKind[span.kind.upper()],
                attributes=dict(span.attributes),
                links=[Link(_span_context(each)) for each in span.links],
                start_time=_nanoseconds(span.began_at),
            )
        finally:
            self._context.reset(token)
        if span.error is not None:
            sent.set_attribute("error.type", span.error)
            sent.set_status(StatusCode.ERROR, span.error)
        sent.end(_nanoseconds(span.ended_at))

    def _make_provider(self) -> TracerProvider:
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - likewise
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - likewise
        from opentelemetry.sdk.trace.id_generator import IdGenerator  # noqa: PLC0415 - likewise

        context = self._context

        class DerivedIds(IdGenerator):
            """Returns the ids of the span that is being sent."""

            def generate_span_id(self) -> int:
                return int(context.get().span_id, 16)

            def generate_trace_id(self) -> int:
                return int(context.get().trace_id, 16)

        provider = TracerProvider(
            resource=self._resource(),
            id_generator=DerivedIds(),
        )
        for exporter in self._exporters or self._exporters_of_settings():
            provider.add_span_processor(
                BatchSpanProcessor(exporter, schedule_delay_millis=SEND_AFTER_MILLISECONDS)
            )
        return provider

    def _resource(self) -> Resource:
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource  # noqa: PLC0415 - likewise

        return Resource.create({SERVICE_NAME: self._settings.service_name})

    def _make_meter(self) -> Meter:
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415 - likewise

        readers = self._metric_readers or self._readers_of_settings()
        provider = MeterProvider(readers, resource=self._resource())
        return provider.get_meter(SCOPE)

    def _readers_of_settings(self) -> list[MetricReader]:
        from opentelemetry.sdk.metrics.export import (  # noqa: PLC0415 - likewise
            PeriodicExportingMetricReader,
        )

        readers: list[MetricReader] = []
        if endpoint := self._settings.otlp_endpoint:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415 - likewise
                OTLPMetricExporter,
            )

            url = f"{endpoint}/v1/metrics"
            exporter = OTLPMetricExporter(endpoint=url, timeout=SEND_LIMIT_SECONDS)
            readers.append(PeriodicExportingMetricReader(exporter))
        if connection := self._settings.values.get("APPLICATIONINSIGHTS_CONNECTION_STRING"):
            from azure.monitor.opentelemetry.exporter import (  # noqa: PLC0415 - likewise
                AzureMonitorMetricExporter,
            )

            azure = AzureMonitorMetricExporter(connection_string=connection)
            readers.append(PeriodicExportingMetricReader(azure))
        return readers

    def _exporters_of_settings(self) -> list[SpanExporter]:
        exporters: list[SpanExporter] = []
        if endpoint := self._settings.otlp_endpoint:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - likewise
                OTLPSpanExporter,
            )

            # The exporter reads its headers from OTEL_EXPORTER_OTLP_HEADERS.
            url = f"{endpoint}/v1/traces"
            exporters.append(OTLPSpanExporter(endpoint=url, timeout=SEND_LIMIT_SECONDS))
        if connection := self._settings.values.get("APPLICATIONINSIGHTS_CONNECTION_STRING"):
            from azure.monitor.opentelemetry.exporter import (  # noqa: PLC0415 - likewise
                AzureMonitorTraceExporter,
            )

            # The exporter reads its identity from APPLICATIONINSIGHTS_AUTHENTICATION_STRING.
            exporters.append(AzureMonitorTraceExporter(connection_string=connection))
        return exporters


def _recorders(meter: Meter) -> dict[str, Callable[[float, dict[str, str]], None]]:
    """Instrument → function that records a value with attributes."""
    recorders: dict[str, Callable[[float, dict[str, str]], None]] = {}
    for name, declared in INSTRUMENTS.items():
        about: tuple[str, str, str] = (name, declared.unit, declared.description)
        if declared.kind == "counter":
            recorders[name] = meter.create_counter(*about).add
        elif declared.kind == "histogram":
            recorders[name] = meter.create_histogram(*about).record
        else:
            recorders[name] = meter.create_gauge(*about).set
    return recorders


def _span_context(context: TraceContext) -> SpanContext:
    from opentelemetry.trace import SpanContext, TraceFlags  # noqa: PLC0415 - only where it is used

    return SpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT),
    )


def _nanoseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000) * 1_000
