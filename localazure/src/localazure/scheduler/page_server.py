"""The page: static files, the names of the task hubs, and the HTTP API of each.

The API is that of Durable Functions, with the task hub in its parameter `taskHub`. It asks for no
key: the port is on loopback, and `runtime/http_server.py` refuses other web pages.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aiohttp import web

from localazure.functions.durable.api.http_api import HttpApi
from localazure.functions.durable.api.links import Links
from localazure.functions.durable.api.parameters import BadRequest
from localazure.functions.durable.protocol.calls import DEFAULT_HUB
from localazure.scheduler.hubs import Hubs

_FILES: Final = Path(__file__).parent / "page"

_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def page(hubs: Hubs, base_url: str) -> web.Application:
    """The application. It creates no task hub.

    Args:
        hubs: the task hubs.
        base_url: its own address, for the management URLs of instances.
    """

    async def index(_: web.Request) -> web.FileResponse:
        return web.FileResponse(_FILES / "index.html")

    async def names(_: web.Request) -> web.Response:
        return web.json_response(hubs.names())

    def api_of(request: web.Request) -> HttpApi:
        name = request.query.get("taskHub", DEFAULT_HUB).lower()
        if name not in hubs.names():
            raise BadRequest(f"There is no task hub {name!r}; GET /hubs names all.")
        return HttpApi(
            hub=hubs.get(name),
            links=Links(base_url=base_url, hub_name=name, system_key=""),
            opens_webhook=lambda _: True,
        )

    async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(_HEADERS)

    application = web.Application()
    application.on_response_prepare.append(add_headers)
    application.add_routes(
        [
            web.get("/", index),
            web.static("/page", _FILES),
            web.get("/hubs", names),
            *HttpApi.routes(api_of),
        ]
    )
    return application
