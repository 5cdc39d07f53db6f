"""A task hub in this process, with a test's durable functions and the host's worker and engine."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import aiohttp
import azure.durable_functions as df
import pytest
from aiohttp import web

from harness.waiting import eventually
from localazure.faults.injector import Injector
from localazure.faults.plan import Part
from localazure.functions.app import decorated_app
from localazure.functions.app.decorated_app import Definition
from localazure.functions.app.loader import LoadedFunction, check_all
from localazure.functions.durable.api.links import WEBHOOK_PATH
from localazure.functions.durable.extension import DurableExtension
from localazure.functions.durable.options import DurableOptions
from localazure.functions.durable.runtime.hub_settings import Clock, utc_now
from localazure.functions.http.authorization import KeyRing
from localazure.functions.triggers.durable.functions import DurableFunctions
from localazure.functions.worker.invocation import Invoker, Outcome, TriggerData
from localazure.functions.worker.thread_pool import thread_count
from localazure.processes.ports import free_ports

KEYS = KeyRing(master="master-key", host="host-key", system="system key/with+odd=characters")
TERMINAL = {"Completed", "Failed", "Terminated"}

EARLY_EVENTS = pytest.mark.filterwarnings(
    # The SDK warns about an event that arrives before its wait.
    "ignore:Potential duplicate Task completion:UserWarning"
)


class DurableApp(df.DFApp):
    """A function app that records its invocations."""

    def __init__(self) -> None:
        super().__init__()
        self.invoked: list[str] = []

    def orchestrator(self, function: Callable[..., Any]) -> None:
        self.orchestration_trigger(context_name="context")(function)

    def activity(self, function: Callable[..., Any]) -> None:
        (name,) = inspect.signature(function).parameters
        self.activity_trigger(input_name=name)(function)

    def entity(self, function: Callable[..., Any]) -> None:
        self.entity_trigger(context_name="context")(function)

    @cached_property
    def _definitions(self) -> list[Definition]:
        """Cached, because the SDK can index an app only once."""
        return decorated_app.index(self, Path("function_app.py"))

    def count(self, name: str) -> int:
        return self.invoked.count(name)

    @asynccontextmanager
    async def started(
        self,
        folder: Path,
        *,
        drain_seconds: float,
        base_url: str = "http://127.0.0.1",
        clock: Clock = utc_now,
        host_json: Mapping[str, Any] | None = None,
        app_settings: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[DurableFunctions]:
        """Load the functions like the host, and let the engine run them.

        Args:
            folder: the folder with the task hub's database and the plan of faults.
            drain_seconds: how long functions may continue at the end.
            base_url: the base URL of the engine's routes.
            clock: the engine's clock.
            host_json: the `extensions.durableTask` of host.json.
            app_settings: the app's settings.
        """
        app, settings = self, app_settings or {}

        class CountingInvoker(Invoker):
            async def invoke(
                self,
                function: LoadedFunction,
                data: TriggerData,
            ) -> Outcome:
                app.invoked.append(function.durable_name)
                return await super().invoke(function, data)

        async def no_binding(*_: Any) -> Any:
            raise AssertionError("these functions have triggers only")

        invoker = CountingInvoker(
            timeout=None,
            client_binding=lambda: "",
            fetch_input=no_binding,
            send_output=no_binding,
            threads=thread_count({}),
        )
        functions = DurableFunctions(
            check_all(self._definitions, settings),
            invoker=invoker,
            database_path=folder / "hub.db",
            base_url=base_url,
            keys=KEYS,
            options=DurableOptions.model_validate(host_json or {}),
            app_settings=settings,
            faults=Injector(folder, Part.FUNCTIONS),
            clock=clock,
        )
        await functions.start()
        try:
            yield functions
        finally:
            await functions.stop(drain_seconds)
            invoker.close()


def simple_app() -> DurableApp:
    """An app whose orchestrators have one step each. Tests add their own orchestrators."""
    app = DurableApp()

    @app.activity
    def double(number: int) -> int:
        return 2 * number

    @app.activity
    def boom(text: str) -> None:
        raise ValueError(text)

    @app.orchestrator
    def simple(context: df.DurableOrchestrationContext) -> Any:
        return (yield context.call_activity("double", 1))

    @app.orchestrator
    def failing(_: df.DurableOrchestrationContext) -> Any:
        raise ValueError("as told")

    @app.orchestrator
    def waiting(context: df.DurableOrchestrationContext) -> Any:
        name = yield context.wait_for_external_event("go")
        return [name, (yield context.call_activity("double", 21))]

    return app


class PushedClock:
    """The wall clock, which a test may set forward."""

    def __init__(self) -> None:
        self.offset = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.offset


@dataclass
class RunningHub:
    """A task hub with an HTTP server and a client."""

    extension: DurableExtension
    client: Any
    http: aiohttp.ClientSession
    base_url: str
    clock: PushedClock

    async def until(
        self, instance_id: str, *statuses: str, history: bool = False
    ) -> Any:  # the SDK declares statuses as optional
        """Poll until an instance has one of these statuses (by default: any final status)."""
        wanted = set(statuses) or TERMINAL

        async def reached() -> Any:
            status = await self.client.get_status(
                instance_id, show_history=history, show_history_output=history, show_input=True
            )
            found = status.runtime_status
            return status if found is not None and found.value in wanted else None

        return await eventually(reached)

    async def run(self, name: str, client_input: Any = None, **kwargs: Any) -> Any:
        """Start an orchestration and return its final status."""
        instance_id = await self.client.start_new(name, client_input=client_input, **kwargs)
        return await self.until(instance_id)


@asynccontextmanager
async def running(
    app: DurableApp, folder: Path, *, drain_seconds: float = 5.0, **settings: Any
) -> AsyncGenerator[RunningHub]:
    """Serve an app's task hub on a free port, with the settings of `DurableApp.started`."""
    (port,) = free_ports(1)
    clock, url = PushedClock(), f"http://127.0.0.1:{port}"
    runner: web.AppRunner | None = None
    try:
        async with (
            aiohttp.ClientSession() as http,
            app.started(
                folder, drain_seconds=drain_seconds, base_url=url, clock=clock, **settings
            ) as functions,
        ):
            extension: Any = functions.extension  # a `HostLink` for one of several hosts
            server = web.Application()
            server.add_routes(extension.routes())
            runner = web.AppRunner(server)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port).start()
            binding: str = extension.client_binding()
            # Several hosts listen on one port; here each has its own, and the engine names one.
            named = json.loads(binding)["baseUrl"].removesuffix(WEBHOOK_PATH)
            client = df.DurableOrchestrationClient(binding.replace(named, url))
            yield RunningHub(extension, client, http, url, clock)
    finally:
        if runner is not None:
            await runner.cleanup()
