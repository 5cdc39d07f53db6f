"""The Functions host: an app folder, loaded and running.

`serve` runs it as a part of localazure, with its keys and settings; `start_host` runs it alone, as
`func start` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiohttp import web

from localazure.database import Database
from localazure.environment import LOOPBACK, Environment
from localazure.functions import bindings, listeners, logs, timer_trigger
from localazure.functions.admin_api import AdminApi, http_path
from localazure.functions.authorization import KeyRing, OpenDoor
from localazure.functions.blob_trigger import BlobFunction, BlobTriggers, find_host_id
from localazure.functions.errors import AppLoadError
from localazure.functions.event_grid_trigger import EventGridTrigger
from localazure.functions.host_json import HostOptions
from localazure.functions.http_trigger import MAX_REQUEST_BYTES, HttpEndpoint, HttpTrigger
from localazure.functions.input_bindings import InputBindings
from localazure.functions.invocation import Invoker
from localazure.functions.listeners import LISTENERS, Listener, Surroundings
from localazure.functions.loader import LoadedFunction, importable, load
from localazure.functions.output_bindings import OutputBindings
from localazure.functions.settings import LocalSettings, process_environment, time_zone
from localazure.functions.storage_clients import StorageClients
from localazure.functions.storage_outputs import StorageOutputs

if TYPE_CHECKING:
    from localazure.functions.durable_functions import DurableFunctions

_LOG = logging.getLogger(logs.HOST_LOGGER)

DEFAULT_PORT: Final = 7071  # func's own
# Docker gives a container 10 s from SIGTERM to SIGKILL, and so do most supervisors.
DRAIN_SECONDS: Final = 8.0
_CLOSE_CONNECTIONS_SECONDS: Final = 1.0


class Host:
    """One app: its functions, the triggers that wait for them, and the web server before them."""

    def __init__(
        self,
        functions: list[LoadedFunction],
        options: HostOptions,
        *,
        port: int,
        state: Path,
        keys: KeyRing,
        settings: Mapping[str, str],
    ) -> None:
        """A host that is yet to be started.

        Args:
            functions: the app's, disabled ones included.
            options: its host.json.
            port: TCP port on the loopback interface.
            state: folder for timers and orchestrations.
            keys: who may call what.
            settings: app settings.

        Raises:
            AppLoadError: a binding's setting is wrong; names all such functions at once.
        """
        self.functions = functions
        self._options = options
        self._port = port
        self.keys = keys
        self._storage = StorageClients(settings)
        self._outputs = OutputBindings(settings, StorageOutputs(self._storage, options.queues))
        self._database = Database(state / "timers.db", timer_trigger.MIGRATIONS)
        self._durable: DurableFunctions | None = None
        threads = settings.get("PYTHON_THREADPOOL_THREAD_COUNT", "")
        self.invoker = Invoker(
            timeout=options.function_timeout,
            client_binding=self._client_binding,
            fetch_input=InputBindings(self._storage).fetch,
            send_output=self._outputs.send,
            chance=random.Random(),  # noqa: S311 - jitter is no secret
            threads=int(threads) if threads.isdecimal() and int(threads) else None,
        )
        self._is_ready = asyncio.Event()
        self._is_draining = False
        enabled = [function for function in functions if not function.is_disabled]
        try:
            self._listeners, self._http = self._build(enabled, settings)
            self._webhooks = [
                route
                for one in self._listeners
                if isinstance(one, BlobTriggers)
                for route in one.routes()
            ]
            self._event_grid = EventGridTrigger(
                _of_kinds(enabled, {bindings.EVENT_GRID_TRIGGER}), keys, self.invoker
            )
            if any(_uses_durable(function) for function in enabled):
                # An app without durable functions needs neither the engine nor its SDK.
                from localazure.functions.durable_functions import DurableFunctions  # noqa: PLC0415

                self._durable = DurableFunctions(
                    _of_kinds(enabled, bindings.DURABLE_TRIGGERS),
                    invoker=self.invoker,
                    database_path=state / "durable.db",
                    base_url=self.base_url,
                    system_key=keys.system,
                    settings=options.durable_task,
                )
        except BaseException:
            self._database.close()
            raise
        self._runner = web.AppRunner(
            self._web_application(),
            # The access log would show the keys that come as ?code=.
            access_log=None,
            shutdown_timeout=_CLOSE_CONNECTIONS_SECONDS,
        )

    @property
    def base_url(self) -> str:
        """Base URL, without a trailing slash."""
        return f"http://{LOOPBACK}:{self._port}"

    async def start(self) -> None:
        """Listen, and start every trigger.

        Raises:
            OSError: the port is taken.
        """
        await self._runner.setup()
        await web.TCPSite(self._runner, LOOPBACK, self._port).start()
        # The engine may resume activities that call this very server; requests from outside
        # wait until the engine can take what they start.
        if self._durable is not None:
            await self._durable.start()
        for listener in self._listeners:
            await listener.start()
        self._is_ready.set()

    async def stop(self, drain_seconds: float) -> None:
        """Take nothing new, let what runs finish within the time, and close."""
        self._is_draining = True
        deadline = asyncio.get_running_loop().time() + drain_seconds
        await asyncio.gather(*(listener.stop() for listener in self._listeners))

        def left() -> float:
            return max(deadline - asyncio.get_running_loop().time(), 0.0)

        # First those that may still use their durable client, then the engine itself.
        if not await self.invoker.drain(left()):
            _LOG.warning("functions still run after %.0f s; they are cut off", drain_seconds)
        if self._durable is not None:
            await self._durable.stop(left())
        await asyncio.gather(*(listener.finish() for listener in self._listeners))
        await self._runner.cleanup()
        await self._outputs.close()
        await self._storage.close()
        self.invoker.close()
        self._database.close()

    def list_functions(self) -> str:
        """The functions and where they answer, as `func start` prints it."""
        lines = ["Functions:"]
        for function in sorted(self.functions, key=lambda function: function.name):
            kind = function.trigger.kind
            if function.is_disabled:
                lines.append(f"\t{function.name}: {kind} (disabled)")
            elif kind == bindings.HTTP_TRIGGER:
                methods = ",".join(
                    str(method) for method in function.trigger.settings.get("methods") or ()
                )
                prefix = f"[{methods}] " if methods else ""
                url = f"{self.base_url}/{http_path(function, self._options.route_prefix)}"
                lines.append(f"\t{function.name}: {prefix}{url}")
            else:
                lines.append(f"\t{function.name}: {kind}")
        return "\n\n".join(lines)

    def _client_binding(self) -> str:
        assert self._durable is not None
        return self._durable.extension.client_binding()

    def _build(
        self, enabled: list[LoadedFunction], settings: Mapping[str, str]
    ) -> tuple[list[Listener], HttpTrigger]:
        surroundings = Surroundings(
            invoker=self.invoker,
            options=self._options,
            settings=settings,
            storage=self._storage,
            database=self._database,
            zone=time_zone(settings),
        )
        waiting: list[Listener] = []
        blob_functions: list[BlobFunction] = []
        endpoints: list[HttpEndpoint] = []
        faults: list[str] = []
        for function in enabled:
            kind = function.trigger.kind
            try:
                if kind == bindings.HTTP_TRIGGER:
                    endpoints.append(HttpEndpoint.of(function, self._options.route_prefix))
                elif kind == bindings.BLOB_TRIGGER:
                    blob_functions.append(BlobFunction.of(function, self._storage))
                elif kind in LISTENERS:
                    waiting.append(LISTENERS[kind](function, surroundings))
            except ValueError as error:
                faults.append(f"cannot start the function {function.name}: {error}")
        if faults:
            raise AppLoadError("\n".join(faults))
        if blob_functions:
            waiting.append(self._blob_triggers(blob_functions, settings))
        return waiting, HttpTrigger(endpoints, self.keys, self.invoker)

    def _blob_triggers(
        self, functions: list[BlobFunction], settings: Mapping[str, str]
    ) -> BlobTriggers:
        return BlobTriggers(
            functions,
            keys=self.keys,
            invoker=self.invoker,
            options=self._options.blobs,
            storage=self._storage,
            host_id=find_host_id(settings, functions),
        )

    def _web_application(self) -> web.Application:
        application = web.Application(client_max_size=MAX_REQUEST_BYTES, middlewares=[self._gate])
        admin = AdminApi(
            self.functions,
            base_url=self.base_url,
            route_prefix=self._options.route_prefix,
            keys=self.keys,
            invoker=self.invoker,
            by_hand=listeners.BY_HAND,
        )
        application.add_routes(admin.routes())
        application.add_routes(self._event_grid.routes())
        application.add_routes(self._webhooks)
        if self._durable is not None:
            application.add_routes(self._durable.extension.routes())
        application.router.add_route("*", "/{path:.*}", self._http.handle)
        return application

    @web.middleware
    async def _gate(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Holds requests until the start is over; refuses new work in a drain."""
        if self._is_draining and not request.path.startswith("/durabletask/"):
            # What still runs may go on using its durable client; nobody else may begin anything.
            return web.Response(status=503, headers={"Retry-After": "1"})
        await self._is_ready.wait()
        return await handler(request)


@contextlib.asynccontextmanager
async def run_app(
    app: Path,
    *,
    port: int,
    state: Path,
    keys: KeyRing,
    app_settings: Mapping[str, str],
    drain_seconds: float = DRAIN_SECONDS,
) -> AsyncGenerator[Host]:
    """Load an app and have it running; drains it at the end.

    The working directory, the environment, the import path and the log format are the app's
    meanwhile, and as they were before afterwards.

    Args:
        app: folder with host.json and function_app.py.
        port: TCP port on the loopback interface.
        state: folder for timers and orchestrations, made when missing.
        keys: who may call what.
        app_settings: win over the process environment, which wins over local.settings.json.
        drain_seconds: how long functions may go on at the end.

    Raises:
        AppLoadError: the app is broken; says where and how.
        OSError: the port is taken.
    """
    app, state = app.resolve(), state.resolve()
    state.mkdir(parents=True, exist_ok=True)
    local = LocalSettings.read(app)
    platform = {
        "AZURE_FUNCTIONS_ENVIRONMENT": "Development",
        "WEBSITE_HOSTNAME": f"{LOOPBACK}:{port}",
    }
    with contextlib.ExitStack() as surroundings:
        surroundings.enter_context(
            process_environment({**platform, **local.values, **os.environ, **app_settings})
        )
        options = HostOptions.read(app)
        surroundings.enter_context(contextlib.chdir(app))
        surroundings.enter_context(logs.configured(options.log_levels))
        for warning in options.warnings:
            _LOG.warning(warning)
        surroundings.enter_context(importable(app))
        functions = load(app, os.environ, options.functions)
        _warn_of_retry_policies(functions)
        host = Host(
            functions, options, port=port, state=state, keys=keys, settings=dict(os.environ)
        )
        try:
            await host.start()
            _LOG.info("%s", host.list_functions())
            yield host
        finally:
            await host.stop(drain_seconds)


@contextlib.asynccontextmanager
async def serve(environment: Environment) -> AsyncGenerator[None]:
    """Run the environment's app as a part of localazure."""
    keys = KeyRing(
        master=environment.keys.functions_master,
        host=environment.keys.functions_host,
        system=environment.keys.functions_system,
    )
    async with run_app(
        environment.app,
        port=environment.ports.functions,
        state=environment.part_folder("functions"),
        keys=keys,
        app_settings=environment.app_settings,
    ):
        yield


async def start_host(
    app: Path, *, port: int | None, state: Path, enable_auth: bool = False
) -> None:
    """Run an app alone until SIGTERM or SIGINT, as `func start` does.

    Args:
        app: folder with host.json and function_app.py.
        port: TCP port, None for that of local.settings.json or else 7071.
        state: folder for keys, timers and orchestrations, made when missing.
        enable_auth: ask for keys, which `func start` does not either unless it is told to.

    Raises:
        AppLoadError: the app is broken; says where and how.
        OSError: the port is taken.
    """
    logging.basicConfig(level=logging.INFO)  # nothing, if the caller has done so
    state.mkdir(parents=True, exist_ok=True)
    ring = KeyRing if enable_auth else OpenDoor
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    async with run_app(
        app,
        port=port or LocalSettings.read(app).http_port or DEFAULT_PORT,
        state=state,
        keys=ring.kept_in(state),
        app_settings={},
    ) as host:
        sys.stdout.write(f"\n{host.list_functions()}\n\n")
        if enable_auth:
            sys.stdout.write(f"Keys: {state / 'keys.json'}\n")
        sys.stdout.flush()
        await stop.wait()


def _of_kinds(
    functions: list[LoadedFunction], kinds: Mapping[str, str] | set[str]
) -> list[LoadedFunction]:
    return [function for function in functions if function.trigger.kind in kinds]


def _uses_durable(function: LoadedFunction) -> bool:
    return function.trigger.kind in bindings.DURABLE_TRIGGERS or bool(
        function.bindings_of(bindings.DURABLE_CLIENT)
    )


def _warn_of_retry_policies(functions: list[LoadedFunction]) -> None:
    for function in functions:
        if function.retry_policy and function.trigger.kind not in bindings.RETRIED_BY_POLICY:
            _LOG.warning(
                "the retry policy of '%s' has no effect: as on Azure, a %s is not retried by one",
                function.name,
                function.trigger.kind,
            )
