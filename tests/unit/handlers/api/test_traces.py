from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from handlers.api.traces import describe_trace, get_trace
from handlers.configuration.clients import Clients
from handlers.configuration.settings import Settings
from tests.unit.handlers.asking import ask

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def span(span_id: str, parent: str = "", second: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "spanId": span_id,
        "name": f"span {span_id}",
        "kind": "SPAN_KIND_CONSUMER",
        "startTimeUnixNano": str(second * 1_000_000_000 + 1_500),
        "endTimeUnixNano": str((second + 1) * 1_000_000_000),
        **({"parentSpanId": parent} if parent else {}),
        **more,
    }


def answer(*spans: dict[str, Any], service: str = "landfall") -> str:
    name = {"key": "service.name", "value": {"stringValue": service}}
    sender = {"resource": {"attributes": [name]}, "scopeSpans": [{"spans": list(spans)}]}
    return json.dumps({"result": {"resourceSpans": [sender]}})


def test_parents_come_before_their_children_in_the_order_of_time() -> None:
    spans = [span("a"), span("b", "a", 1), span("c", "b", 2), span("d", "a", 3), span("e", "x", 4)]
    for seed in range(10):
        mixed = list(spans)
        random.Random(seed).shuffle(mixed)
        found = describe_trace(TRACE, answer(*mixed))
        assert [each.id for each in found.spans] == ["a", "b", "c", "d", "e"]


def test_a_span_is_described_with_its_service_attributes_links_and_error() -> None:
    written = span(
        "a",
        attributes=[
            {"key": "state", "value": {"stringValue": "failed"}},
            {"key": "attempt", "value": {"intValue": "2"}},
            {"key": "gpu", "value": {"boolValue": True}},
        ],
        links=[{"traceId": "b" * 32, "spanId": each * 16} for each in "cd"],
        status={"code": "STATUS_CODE_ERROR", "message": "JobFailed"},
    )
    (found,) = describe_trace(TRACE, answer(written, service="trainer")).spans
    assert (found.service, found.kind, found.error) == ("trainer", "consumer", "JobFailed")
    assert found.attributes == {"state": "failed", "attempt": "2", "gpu": "true"}
    assert found.links == ["b" * 32]
    assert found.began_at.isoformat() == "1970-01-01T00:00:00.000001+00:00"


def test_an_answer_in_several_documents_is_one_trace() -> None:
    text = answer(span("a")) + "\n" + answer(span("b", "a")) + "\n"
    assert len(describe_trace(TRACE, text).spans) == 2


def test_spans_that_are_their_own_ancestors_do_not_hang() -> None:
    assert describe_trace(TRACE, answer(span("a", "b"), span("b", "a"))).spans == []


@pytest.mark.parametrize(
    ("settings", "trace", "status"),
    [
        ({}, TRACE, 503),
        ({"TRACE_QUERY_ENDPOINT": "http://x"}, "../etc", 404),
        ({"TRACE_QUERY_ENDPOINT": "file:///etc"}, TRACE, 503),
    ],
)
def test_a_trace_that_cannot_be_read_is_a_problem(
    settings: dict[str, str], trace: str, status: int
) -> None:
    found = asyncio.run(ask(get_trace, Clients(Settings(settings)), trace=trace))
    assert found.status == status
