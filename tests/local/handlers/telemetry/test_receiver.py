"""Spans as they come back from the laptop's OTLP receiver, in the document of the API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from handlers.api.traces import get_trace
from handlers.configuration.settings import Settings
from handlers.telemetry.exporting import Telemetry
from handlers.telemetry.spans import TracedEvent, accepted_events
from localazure.telemetry.service import application
from localazure.telemetry.store import Store
from orchestrations.trace_context import TraceContext
from tests.unit.handlers.asking import ask

NOW = datetime(2026, 11, 23, tzinfo=UTC)


@pytest.fixture
async def receiver(tmp_path: Path) -> AsyncIterator[str]:
    store = Store(tmp_path / "spans.db")
    runner = web.AppRunner(application(store))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    yield f"http://{host}:{port}"
    await runner.cleanup()
    store.close()


async def test_a_batch_of_events_is_linked_to_the_trace_of_each_upload(receiver: str) -> None:
    opener, *others = (TraceContext.root("upload", str(number)) for number in range(4))
    # Many files of each upload, so that the links are of uploads and not of files.
    headers = [each.header for each in (opener, *others) for _ in range(100)]
    events = [
        TracedEvent(id=f"e{number:03}", time=NOW, traceparent=header)
        for number, header in enumerate(headers)
    ]
    span = accepted_events(
        "digits", "landing-digits", events, batch=None, began_at=NOW, ended_at=NOW
    )
    exporter = OTLPSpanExporter(endpoint=f"{receiver}/v1/traces")
    telemetry = Telemetry(Settings({}), [exporter])
    telemetry.send([span])
    await asyncio.to_thread(telemetry.flush)
    exporter.shutdown()

    clients: Any = SimpleNamespace(settings=Settings({"TRACE_QUERY_ENDPOINT": receiver}))
    answer = await ask(get_trace, clients, trace=opener.trace_id)
    (shown,) = json.loads(json.dumps(answer.document))["spans"]
    assert shown["name"] == "accept digits"
    assert shown["parent"] == opener.span_id
    assert shown["links"] == [each.trace_id for each in others]
