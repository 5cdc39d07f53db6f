"""A stand-in for the worker: runs plain functions through the SDK's own wrappers."""

from __future__ import annotations

import asyncio
import inspect
import json
import socket
import traceback
import warnings
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import azure.durable_functions as df
from aiohttp import web
from azure.durable_functions.models.utils import http_utils

from localazure.functions.durable.engine.orchestrator_trigger import OrchestratorTrigger
from localazure.functions.durable.extension import (
    DurableExtension,
    DurableOptions,
    FunctionFailed,
)
from localazure.functions.durable.store.shared_store import Sharing

SYSTEM_KEY = "system key/with+odd=characters"
DEADLINE_SECONDS = 20.0
TERMINAL = {"Completed", "Failed", "Terminated"}


@dataclass
class TinyApp:
    """Functions by kind and name, and what was invoked."""

    orchestrators: dict[str, Callable[..., Any]] = field(default_factory=dict)
    activities: dict[str, Callable[..., Any]] = field(default_factory=dict)
    entities: dict[str, Callable[..., Any]] = field(default_factory=dict)
    invoked: list[str] = field(default_factory=list)

    def orchestrator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        self.orchestrators[function.__name__] = function
        return function

    def activity(self, function: Callable[..., Any]) -> Callable[..., Any]:
        self.activities[function.__name__] = function
        return function

    def entity(self, function: Callable[..., Any]) -> Callable[..., Any]:
        self.entities[function.__name__] = function
        return function

    def count(self, name: str) -> int:
        return self.invoked.count(name)

    async def invoke(self, name: str, trigger: str | OrchestratorTrigger) -> str | None:
        self.invoked.append(name)
        try:
            if isinstance(trigger, OrchestratorTrigger):
                trigger = trigger.body
            if name in self.activities:
                result = self.activities[name](json.loads(trigger))
                if inspect.isawaitable(result):
                    result = await result
                return json.dumps(result)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the SDK warns of its own codec
                if name in self.entities:
                    return df.Entity.create(self.entities[name])(trigger)
                return df.Orchestrator.create(self.orchestrators[name])(trigger)
        except Exception as error:
            stack = "".join(traceback.format_exception(error))
            raise FunctionFailed(type(error).__name__, str(error), stack) from error


class Clock:
    """The wall clock, which a test may push forward."""

    def __init__(self) -> None:
        self.offset = datetime.now(UTC) - datetime.now(UTC)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.offset


@dataclass
class RunningHub:
    """A task hub that answers HTTP, with a client of it."""

    extension: DurableExtension
    client: Any
    base_url: str
    clock: Clock

    async def until(
        self, instance_id: str, *statuses: str, history: bool = False
    ) -> Any:  # the SDK declares its status as optional throughout
        """Poll until an instance has one of these states (by default: any final one)."""
        wanted = set(statuses) or TERMINAL
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                status = await self.client.get_status(
                    instance_id, show_history=history, show_history_output=history, show_input=True
                )
                if status.runtime_status is not None and status.runtime_status.value in wanted:
                    return status
                await asyncio.sleep(0.005)

    async def run(self, name: str, client_input: Any = None, **kwargs: Any) -> Any:
        """Start an orchestration and return its final status."""
        instance_id = await self.client.start_new(name, client_input=client_input, **kwargs)
        return await self.until(instance_id)


@asynccontextmanager
async def running(
    app: TinyApp,
    folder: Path,
    *,
    drain_seconds: float = 5.0,
    sharing: Sharing | None = None,
    **options: Any,
) -> AsyncGenerator[RunningHub]:
    """Serve an app's task hub on a free port, with its state in `folder`."""
    server = web.Application()
    # The port is known only once the server listens, the routes must be there before that: the
    # listening socket comes first.
    listener = socket.create_server(("127.0.0.1", 0))
    base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    clock = Clock()
    extension = DurableExtension(
        database_path=folder / "hub.db",
        base_url=base_url,
        system_key=SYSTEM_KEY,
        invoke=app.invoke,
        options=DurableOptions(**options),
        sharing=sharing,
        clock=clock,
    )
    server.add_routes(extension.routes())
    runner = web.AppRunner(server)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    await extension.start(
        orchestrators=app.orchestrators, activities=app.activities, entities=app.entities
    )
    try:
        yield RunningHub(
            extension=extension,
            client=df.DurableOrchestrationClient(extension.client_binding()),
            base_url=base_url,
            clock=clock,
        )
    finally:
        # The SDK keeps one session for the process, which belongs to the first event loop.
        await http_utils._close_session()  # pyright: ignore[reportPrivateUsage]
        await extension.stop(drain_seconds)
        await runner.cleanup()


async def eventually(holds: Callable[[], bool]) -> None:
    """Poll until something holds."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not holds():
            await asyncio.sleep(0.005)
