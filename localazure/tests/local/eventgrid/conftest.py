from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from localazure.processes.ports import free_ports
from localazure.runtime.environment import Environment
from localazure.runtime.http_server import listening, runner_of


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    environment = Environment.draw(tmp_path / "state", app=tmp_path, config=tmp_path)
    environment.save()
    return environment


@pytest.fixture
def configure(environment: Environment) -> Callable[..., None]:
    def write(
        *subscriptions: dict[str, Any], topics: tuple[dict[str, Any], ...] = (), **settings: object
    ) -> None:
        document = {"topics": topics, "eventSubscriptions": subscriptions, **settings}
        environment.event_grid_config.write_text(json.dumps(document))

    return write


class Receiver:
    """A webhook that records its requests and returns the given answers."""

    def __init__(self) -> None:
        self.port = free_ports(1)[0]
        self.requests: list[tuple[dict[str, str], Any]] = []
        self.answers: list[int] = []
        self.handshakes = 0
        self.agrees = True
        self._changed = asyncio.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def events(self) -> list[dict[str, Any]]:
        bodies = [body for _, body in self.requests]
        return [event for body in bodies for event in (body if isinstance(body, list) else [body])]

    async def handle(self, request: web.Request) -> web.Response:
        if request.method == "OPTIONS":
            self.handshakes += 1
            origin = request.headers["WebHook-Request-Origin"]
            headers = {"WebHook-Allowed-Origin": origin} if self.agrees else {}
            return web.Response(headers=headers)
        body = await request.json()
        if request.headers["aeg-event-type"] == "SubscriptionValidation":
            self.handshakes += 1
            code = body[0]["data"]["validationCode"]
            return web.json_response({"validationResponse": code if self.agrees else "?"})
        self.requests.append((dict(request.headers), body))
        async with self._changed:
            self._changed.notify_all()
        return web.Response(status=self.answers.pop(0) if self.answers else 200)

    async def wait_for(self, predicate: Callable[[], bool]) -> None:
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(predicate)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncGenerator[Receiver]:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self.handle)
        async with listening(runner_of(application), {self.port: None}):
            yield self


@pytest.fixture
def new_receiver() -> Callable[[], Receiver]:
    return Receiver


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver().listening() as receiver:
        yield receiver


@pytest.fixture
def webhook() -> Callable[..., dict[str, Any]]:
    """A subscription for a webhook, in the form of event-grid.json."""

    def make(
        name: str,
        topic: str,
        url: str,
        destination: dict[str, Any] | None = None,
        **properties: Any,
    ) -> dict[str, Any]:
        return {
            "name": name,
            "topic": topic,
            "properties": {
                "destination": {
                    "endpointType": "WebHook",
                    "properties": {"endpointUrl": url, **(destination or {})},
                },
                **properties,
            },
        }

    return make
