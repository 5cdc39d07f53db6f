"""The Durable Functions extension for the Functions host: composes store, engine and HTTP API."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from aiohttp import web

from localazure.faults.injector import Injector
from localazure.faults.plan import OF_ACTIVITIES, OF_SIGNALS
from localazure.functions.durable.api.http_api import HttpApi, OpensWebhook
from localazure.functions.durable.api.links import Links
from localazure.functions.durable.app_description import AppDescription
from localazure.functions.durable.engine.invocation import Invoke, KnownFunctions
from localazure.functions.durable.runtime.app_functions import AppFunctions
from localazure.functions.durable.runtime.app_worker import AppWorker
from localazure.functions.durable.runtime.dispatcher import Dispatcher
from localazure.functions.durable.runtime.hub_settings import Clock, HubSettings, utc_now
from localazure.functions.durable.runtime.task_hub import TaskHub
from localazure.functions.durable.runtime.worker import Worker
from localazure.functions.durable.store.store import Store
from localazure.runtime.environment import LOOPBACK


class DurableExtension:
    """One task hub of one function app.

    Attributes:
        hub: the operations of clients.
        api: these operations by HTTP.

    Args:
        app: the app.
        database_path: the task hub's SQLite file, created if missing.
        opens_webhook: returns whether a key gives access to the management API.
        invoke: runs a function.
        faults: decides which activities are run twice, and which signals delivered twice.
        clock: the current time, UTC.
    """

    def __init__(
        self,
        app: AppDescription,
        *,
        database_path: Path,
        opens_webhook: OpensWebhook,
        invoke: Invoke,
        faults: Injector,
        clock: Clock = utc_now,
    ) -> None:
        self._app = app
        settings = HubSettings(
            known=KnownFunctions(**app.functions), options=app.options, clock=clock
        )

        def runs_twice(activity: str) -> bool:
            return (
                app.runs_activities_twice
                or faults.next(f"activity/{activity}", OF_ACTIVITIES) is not None
            )

        def signals_twice(entity: str) -> bool:
            return faults.next(f"signal/{entity}", OF_SIGNALS) is not None

        functions = AppFunctions(invoke=invoke, runs_twice=runs_twice, signals_twice=signals_twice)
        self._store = Store(database_path)
        self._dispatcher = Dispatcher(settings, self._store, self._worker(settings, functions))
        self._links = Links(
            base_url=app.base_url, hub_name=app.options.hub_name, system_key=app.system_key
        )
        self.hub = TaskHub(settings, self._store, self._dispatcher)
        self.api = HttpApi(hub=self.hub, links=self._links, opens_webhook=opens_webhook)
        self._service = contextlib.AsyncExitStack()

    def _worker(self, settings: HubSettings, functions: AppFunctions) -> Worker:
        if not self._app.speaks_protocol:
            return AppWorker(settings, functions)
        # It loads gRPC, which the SDK has brought.
        from localazure.functions.durable.protocol.app_functions_worker import AppFunctionsWorker

        return AppFunctionsWorker(settings, functions)

    def routes(self) -> list[web.RouteDef]:
        """The client's RPC (`/durabletask`) and the management API (`/runtime/webhooks/…`)."""
        return HttpApi.routes(lambda _: self.api)

    def client_binding(self) -> str:
        """The JSON value of a durableClient input binding."""
        return self._links.client_binding

    def fire_timers(self) -> None:
        """Fire the timers that are due; for tests that move the clock."""
        self._dispatcher.fire_timers()

    async def start(self) -> None:
        """Continue all unfinished work."""
        if self._app.speaks_protocol:
            from localazure.functions.durable.protocol.serving import OneHub, serving

            port = await self._service.enter_async_context(serving(OneHub(self.hub)))
            self._links = replace(self._links, grpc=self._grpc(port))
        self._dispatcher.start()

    async def stop(self, drain_seconds: float) -> None:
        """Start no more functions, wait up to `drain_seconds` for running ones, close the store.

        Functions that are still running then are canceled; they run again after the next start.
        """
        await self._dispatcher.stop(drain_seconds)
        self._store.close()
        await self._service.aclose()

    def _grpc(self, port: int) -> dict[str, object]:
        """What clients that speak gRPC find in their binding."""
        return {
            "rpcBaseUrl": f"http://{LOOPBACK}:{port}",
            "maxGrpcMessageSizeInBytes": self._app.options.max_grpc_message_size_in_bytes,
            "grpcHttpClientTimeout": self._app.options.grpc_http_client_timeout,
        }
