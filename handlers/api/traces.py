"""GET /api/traces/{trace}: the spans of a trace, from a trace store with Jaeger's query API.

App setting `TRACE_QUERY_ENDPOINT` is its URL: Jaeger, or any receiver of spans with that API.
https://www.jaegertracing.io/docs/latest/architecture/apis/ (v3 is OTLP in JSON)
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from handlers.api.documents.runs import TraceDetail, TraceSpan
from handlers.configuration.clients import Clients
from handlers.triggers.problem_details import Problem

LIMIT_SECONDS = 10.0
_ID = re.compile(r"[0-9a-f]{32}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KIND = "SPAN_KIND_"
_ERROR = "STATUS_CODE_ERROR"


def get_trace(clients: Clients, *, trace: str) -> TraceDetail:
    """Return the spans of a trace, from the event to the notifications, parents before children."""
    endpoint = clients.settings.trace_query_endpoint
    if _ID.fullmatch(trace) is None:
        raise _not_found(trace)
    if endpoint is None:
        raise Problem(
            503,
            "not-configured",
            "app setting TRACE_QUERY_ENDPOINT is missing: set it to a trace store with "
            "Jaeger's query API; spans in Application Insights are shown in the Azure portal",
        )
    return _read(f"{endpoint}/api/v3/traces/{trace}", trace)


def describe_trace(trace: str, text: str) -> TraceDetail:
    """Parse a trace from one or more concatenated JSON documents of Jaeger. Pure.

    Raises:
        ValueError, KeyError: the text is not in Jaeger's format.
    """
    spans = [_span(span, service) for answer in _documents(text) for span, service in _all(answer)]
    return TraceDetail(id=trace, spans=_in_order(spans))


def _read(url: str, trace: str) -> TraceDetail:
    if not url.startswith(("http://", "https://")):
        raise Problem(503, "not-configured", "app setting TRACE_QUERY_ENDPOINT is not an http URL")
    try:
        with urllib.request.urlopen(url, timeout=LIMIT_SECONDS) as answer:  # noqa: S310 - see above
            return describe_trace(trace, answer.read().decode())
    except urllib.error.HTTPError as error:
        if error.code == 404:  # noqa: PLR2004 - Not Found
            raise _not_found(trace) from None
        raise _unreachable(f"it answered {error.code}") from error
    except (OSError, ValueError, KeyError) as error:
        raise _unreachable(type(error).__name__) from error


def _not_found(trace: str) -> Problem:
    return Problem(
        404,
        "unknown-trace",
        f"no span of trace {trace!r} is there: spans come a second after their end, those of a "
        "run when the run has ended",
    )


def _unreachable(why: str) -> Problem:
    return Problem(
        502,
        "trace-store",
        f"the trace store gave no answer that can be read ({why}): see TRACE_QUERY_ENDPOINT",
    )


def _documents(text: str) -> Iterator[Any]:
    decoder, position = json.JSONDecoder(), 0
    while text[position:].strip():
        start = position + len(text[position:]) - len(text[position:].lstrip())
        document, position = decoder.raw_decode(text, start)
        yield document


def _all(answer: Any) -> Iterator[tuple[Any, str]]:
    for sender in answer["result"]["resourceSpans"]:
        service = _attributes(sender.get("resource", {})).get("service.name", "")
        for scope in sender.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                yield span, str(service)


def _span(span: Mapping[str, Any], service: str) -> TraceSpan:
    status: Mapping[str, Any] = span.get("status", {})
    failed = status.get("code") in (_ERROR, 2)
    return TraceSpan(
        id=span["spanId"],
        parent=span.get("parentSpanId") or None,
        name=span.get("name", ""),
        kind=str(span.get("kind", "")).removeprefix(_KIND).lower(),
        service=service,
        began_at=_moment(span["startTimeUnixNano"]),
        ended_at=_moment(span["endTimeUnixNano"]),
        attributes=_attributes(span),
        links=list(dict.fromkeys(link["traceId"] for link in span.get("links", ()))),
        error=str(status.get("message") or "error") if failed else None,
    )


def _moment(nanoseconds: str | int) -> datetime:
    return _EPOCH + timedelta(microseconds=int(nanoseconds) // 1000)


def _attributes(of: Mapping[str, Any]) -> dict[str, str]:
    return {each["key"]: _text(each.get("value", {})) for each in of.get("attributes", ())}


def _text(value: Mapping[str, Any]) -> str:
    """The text of an OTLP `AnyValue`: an object with the type's name as its only key."""
    return next((it if isinstance(it, str) else json.dumps(it) for it in value.values()), "")


def _in_order(spans: list[TraceSpan]) -> list[TraceSpan]:
    """Sort spans: parents before children, siblings by start; orphans count as roots."""
    ids = {span.id for span in spans}
    below: dict[str | None, list[TraceSpan]] = {}
    for span in sorted(spans, key=lambda each: (each.began_at, each.id), reverse=True):
        below.setdefault(span.parent if span.parent in ids else None, []).append(span)
    ordered: list[TraceSpan] = []
    waiting = below.pop(None, [])
    while waiting:
        span = waiting.pop()
        ordered.append(span)
        waiting += below.pop(span.id, [])
    return ordered
