"""The Functions host: runs a loaded app's functions, triggers, bindings and HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiohttp import web
from aiohttp.typedefs import Handler

from localazure.faults.injector import Injector
from localazure.functions import function_list, host_storage, logs
from localazure.functions.admin_api import AdminApi
from localazure.functions.app import binding_kinds
from localazure.functions.app.loader import LoadedFunction
from localazure.functions.bindings.inputs import InputBindings
from localazure.functions.bindings.outputs import OutputBindings
from localazure.functions.bindings.storage_clients import StorageClients
from localazure.functions.bindings.storage_outputs import StorageOutputs
from localazure.functions.configuration.app_settings import time_zone
from localazure.functions.configuration.host_json import HostOptions
from localazure.functions.http.authorization import KeyRing
from localazure.functions.http.cors import CorsPolicy
from localazure.functions.http.sizes import PARSER_LIMIT_BYTES, refuse_oversized
from localazure.functions.triggers.http.trigger import max_request_bytes
from localazure.functions.triggers.registry import BY_HAND, Surroundings, Triggers
from localazure.functions.triggers.timer.one_host import MIGRATIONS, DatabaseInTurn
from localazure.functions.worker.invocation import Invoker
from localazure.functions.worker.span_parent import span_parent_by
from localazure.functions.worker.thread_pool import thread_count
from localazure.runtime.environment import ENGINE, LOOPBACK
from localazure.runtime.http_server import listening, runner_of
from localazure.sqlite.database import Database

if TYPE_CHECKING:
    from localazure.functions.triggers.durable.functions import DurableFunctions

_LOG = logging.getLogger(logs.HOST_LOGGER)

_CLOSE_CONNECTIONS_SECONDS: Final = 1.0


class Host:
    """The host of one app: its functions, their triggers, and the web server."""

    def __init__(  # noqa: PLR0913 - what an app and its surroundings are made of
        self,
        functions: list[LoadedFunction],
        options: HostOptions,
        *,
        port: int,
        state: Path,
        keys: KeyRing,
        settings: Mapping[str, str],
        cors: CorsPolicy,
        injector: Injector,
        invoker: type[Invoker] = Invoker,
    ) -> None:
        """Create a host for an app's functions, without starting it; see `run_app`.

        Raises:
            AppLoadError: a setting of the whole app is invalid, or this host does not support the
            app's version of the Durable Functions SDK.
        """
        self.functions = functions
        self._extensions = options.extensions
        self._settings = settings
        self._port = port
        self.keys = keys
        self._cors = cors
        self._max_request_bytes = max_request_bytes(settings)
        self._storage = StorageClients(settings)
        self._outputs = OutputBindings(
            settings, StorageOutputs(self._storage, options.extensions.queues)
        )
        self._is_one_of_several = bool(settings.get(ENGINE))
        timers = state / "timers.db"
        self._database = (
            DatabaseInTurn(timers) if self._is_one_of_several else Database(timers, MIGRATIONS)
        )
        self._durable: DurableFunctions | None = None
        self.invoker = invoker(
            timeout=options.function_timeout,
            client_binding=self._client_binding,
            fetch_input=InputBindings(self._storage).fetch,
            send_output=self._outputs.send,
            threads=thread_count(settings),
            on_timeout=self._recycle,
            span_parent=span_parent_by(settings),
        )
        self.on_recycle: Callable[[], None] | None = None
        """Called when the process must be restarted because a function exceeded functionTimeout."""
        self.is_recycled = False
        """Whether `on_recycle` was called."""
        self._is_ready = asyncio.Event()
        self._is_draining = False
        try:
            self._triggers = Triggers(
                functions,
                keys,
                Surroundings(
                    invoker=self.invoker,
                    options=options,
                    settings=settings,
                    storage=self._storage,
                    database=self._database,
                    zone=time_zone(settings),
                ),
            )
            if any(_uses_durable(function) for function in self._triggers.functions):
                # Import the engine and the SDK only for an app with durable functions.
                from localazure.functions.triggers.durable import sdk_version

                sdk_version.require_supported_version()
                from localazure.functions.triggers.durable.functions import DurableFunctions

                self._durable = DurableFunctions(
                    (
                        function
                        for function in self._triggers.functions
                        if function.trigger.kind in binding_kinds.DURABLE_TRIGGERS
                    ),
                    invoker=self.invoker,
                    database_path=state / "durable.db",
                    base_url=self.base_url,
                    keys=keys,
                    options=options.extensions.durable_task,
                    app_settings=settings,
                    faults=injector,
                )
        except BaseException:
            self._database.close()
            raise
        self._listening = contextlib.AsyncExitStack()
        self._runner = runner_of(
            self._web_application(),
            shutdown_seconds=_CLOSE_CONNECTIONS_SECONDS,
            max_line_size=PARSER_LIMIT_BYTES,
            max_field_size=PARSER_LIMIT_BYTES,
        )

    @property
    def base_url(self) -> str:
        """Base URL, without a trailing slash."""
        return f"http://{LOOPBACK}:{self._port}"

    @property
    def faults(self) -> Mapping[str, str]:
        """For each function in error, by name, the reason why it does not run."""
        return self._triggers.faults

    async def start(self) -> None:
        """Prepare the host's storage, listen for requests, and start every trigger.

        Raises:
            AppLoadError: the host's identity lacks a role on its storage.
            OSError: the port is taken.
        """
        await host_storage.make_ready(self._settings, self._task_hub())
        await self._listening.enter_async_context(
            listening(
                self._runner,
                {self._port: None},
                pages=self._cors.pages,
                # The kernel distributes connections among the hosts that listen on one port.
                reuse_port=self._is_one_of_several,
            )
        )
        # Listen first: the engine may resume activities that call this server. Requests from
        # outside wait until the engine can accept the orchestrations that they start.
        if self._durable is not None:
            await self._durable.start()
        for listener in self._triggers.listeners:
            await listener.start()
        self._is_ready.set()

    async def stop(self, drain_seconds: float) -> None:
        """Stop accepting work, let running functions finish within the time limit, and close.

        A recycled host does not wait, because the real host kills its worker.
        """
        self._is_draining = True
        if self.is_recycled:
            drain_seconds = 0.0
        deadline = asyncio.get_running_loop().time() + drain_seconds
        await asyncio.gather(*(listener.stop() for listener in self._triggers.listeners))

        def left() -> float:
            return max(deadline - asyncio.get_running_loop().time(), 0.0)

        # Drain functions that may still use a durable client first, then stop the engine.
        if not await self.invoker.drain(left()) and not self.is_recycled:
            _LOG.warning("functions still run after %.0f s; they are cut off", drain_seconds)
        if self._durable is not None:
            await self._durable.stop(left())
        await asyncio.gather(*(listener.finish() for listener in self._triggers.listeners))
        await self._listening.aclose()
        await self._outputs.close()
        await self._storage.close()
        self.invoker.close()
        self._database.close()

    def list_functions(self, colours: logs.Colours = logs.PLAIN) -> str:
        """The functions and their URLs, in the format of `func start`."""
        return function_list.list_functions(
            self.functions,
            self.faults,
            base_url=self.base_url,
            route_prefix=self._extensions.http.route_prefix,
            colours=colours,
        )

    def _task_hub(self) -> str | None:
        """The task hub's name; None if it is not in the host's storage account."""
        is_there = self._extensions.durable_task.is_in_azure_storage
        return self._durable.hub_name if self._durable and is_there else None

    def _recycle(self) -> None:
        if self.on_recycle is not None and not self.is_recycled:
            self.is_recycled = True
            _LOG.error(
                "a function exceeded functionTimeout: the process is recycled, and its other "
                "invocations are cut off, as on Azure"
            )
            self.on_recycle()

    def _client_binding(self) -> str:
        assert self._durable is not None
        return self._durable.extension.client_binding()

    def _web_application(self) -> web.Application:
        application = web.Application(
            client_max_size=self._max_request_bytes,
            middlewares=[refuse_oversized, self._gate, self._cors.answer_preflight],
        )
        application.on_response_prepare.append(self._add_headers)
        application.on_response_prepare.append(self._cors.add_headers)
        admin = AdminApi(
            functions={function.name.lower(): function for function in self.functions},
            faults=self.faults,
            base_url=self.base_url,
            route_prefix=self._extensions.http.route_prefix,
            keys=self.keys,
            invoker=self.invoker,
            by_hand=BY_HAND,
        )
        application.add_routes(admin.routes())
        application.add_routes(self._triggers.webhooks)
        if self._durable is not None:
            application.add_routes(self._durable.extension.routes())
        application.router.add_route("*", "/{path:(?s:.*)}", self._triggers.http.handle)
        return application

    @web.middleware
    async def _gate(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Hold requests until the start is complete; refuse new work during a drain."""
        if self._is_draining and not request.path.startswith("/durabletask/"):
            # Running functions may still use their durable clients; other requests are refused.
            return web.Response(status=503, headers={"Retry-After": "1"})
        await self._is_ready.wait()
        return await handler(request)

    async def _add_headers(self, _: web.Request, response: web.StreamResponse) -> None:
        for name, value in self._extensions.http.custom_headers.items():
            response.headers.setdefault(name, value)


def _uses_durable(function: LoadedFunction) -> bool:
    return function.trigger.kind in binding_kinds.DURABLE_TRIGGERS or bool(
        function.bindings_of(binding_kinds.DURABLE_CLIENT)
    )
