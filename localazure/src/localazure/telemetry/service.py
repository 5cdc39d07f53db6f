"""The receiver's HTTP endpoints, on loopback and without a key, as an OpenTelemetry Collector's.

`POST /v1/traces` takes OTLP (http/protobuf). `POST /v1/metrics` takes metrics and keeps none.
`GET /api/v3/traces/{id}` answers as Jaeger's query API does:
https://www.jaegertracing.io/docs/latest/architecture/apis/
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import AsyncGenerator

from aiohttp import web

from localazure.runtime.environment import Environment
from localazure.runtime.http_server import listening, runner_of
from localazure.telemetry.otlp import InvalidExport, parse_spans, to_trace
from localazure.telemetry.store import Store

PROTOBUF = "application/x-protobuf"
MAX_REQUEST_BYTES = 16 * 2**20
_TRACE_ID = re.compile(r"[0-9a-f]{32}")


@contextlib.asynccontextmanager
async def serve(environment: Environment) -> AsyncGenerator[None]:
    """Serve on `ports.otlp` of loopback.

    Raises:
        OSError: the port is taken.
    """
    store = Store(environment.part_folder("telemetry") / "spans.db")
    try:
        async with listening(runner_of(application(store)), {environment.ports.otlp: None}):
            yield
    finally:
        store.close()


def application(store: Store) -> web.Application:
    """The endpoints over a store."""

    async def take_spans(request: web.Request) -> web.Response:
        body = await _body(request)
        try:
            spans = parse_spans(body)
        except InvalidExport as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        if spans:
            await store.keep(spans, time.time())
        return _accepted()

    async def take_metrics(request: web.Request) -> web.Response:
        await _body(request)
        return _accepted()

    async def answer_trace(request: web.Request) -> web.Response:
        trace_id = request.match_info["trace_id"]
        if _TRACE_ID.fullmatch(trace_id) is None:
            return _error(400, f"a trace id is 32 digits of lower-case hex, found {trace_id!r}")
        spans = store.trace(trace_id)
        if not spans:
            return _error(404, "No traces found")
        return web.json_response({"result": to_trace(spans)})

    served = web.Application(client_max_size=MAX_REQUEST_BYTES)
    served.add_routes(
        [
            web.post("/v1/traces", take_spans),
            web.post("/v1/metrics", take_metrics),
            web.get("/api/v3/traces/{trace_id}", answer_trace),
        ]
    )
    return served


async def _body(request: web.Request) -> bytes:
    if request.content_type != PROTOBUF:
        raise web.HTTPUnsupportedMediaType(
            text=f"Content-Type must be {PROTOBUF}, found {request.content_type!r}: set"
            " OTEL_EXPORTER_OTLP_PROTOCOL to http/protobuf"
        )
    return await request.read()


def _accepted() -> web.Response:
    # An ExportServiceResponse without `partial_success`: an empty message.
    return web.Response(body=b"", content_type=PROTOBUF)


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"httpCode": status, "message": message}}, status=status)
