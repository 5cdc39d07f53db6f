"""Runs a host in the process of its app: folder, environment, settings and signals.

`serve` runs the app as a part of localazure, with its keys and settings; `start_host` runs it
alone, as `func start` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import signal
import sys
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Final

from multidict import CIMultiDict

from localazure.faults.injector import Injector
from localazure.faults.plan import Part
from localazure.functions import function_list, logs
from localazure.functions.app.loader import LoadedFunction, importable, load
from localazure.functions.configuration.app_settings import LocalSettings, process_environment
from localazure.functions.configuration.host_json import HostOptions
from localazure.functions.errors import AppLoadError
from localazure.functions.host import Host
from localazure.functions.http.authorization import KeyRing, OpenDoor
from localazure.functions.http.cors import CorsPolicy
from localazure.functions.worker.invocation import Invoker
from localazure.functions.worker.thread_pool import thread_count
from localazure.processes import memory
from localazure.processes.interruption import end_on_signals
from localazure.processes.lifetime import RECYCLE_STATUS
from localazure.processes.state_folder import make_state_folder
from localazure.runtime.certificates import trusted
from localazure.runtime.environment import LOOPBACK, WORKER, Environment

_LOG = logging.getLogger(logs.HOST_LOGGER)

_INSTANCE_ID: Final = "WEBSITE_INSTANCE_ID"  # as on Azure
_RUNTIME_SETTING: Final = "FUNCTIONS_WORKER_RUNTIME"
DEFAULT_PORT: Final = 7071  # func's default
# Docker and most supervisors send SIGKILL 10 s after SIGTERM.
DRAIN_SECONDS: Final = 8.0


@contextlib.asynccontextmanager
async def run_app(  # noqa: PLR0913 - the options of two commands
    app: Path,
    *,
    port: int,
    state: Path,
    keys: KeyRing,
    app_settings: Mapping[str, str],
    only: Sequence[str] = (),
    cors: CorsPolicy | None = None,
    faults: Path | None = None,
    drain_seconds: float = DRAIN_SECONDS,
) -> AsyncGenerator[Host]:
    """Load and run an app; drain it on exit.

    The working directory, the environment, the import path and the log format are set for the app
    while it runs and restored afterwards.

    Args:
        app: folder with host.json and function_app.py.
        port: TCP port on the loopback interface.
        state: folder for timers and orchestrations, created if missing.
        keys: the access keys of functions, webhooks and the admin API.
        app_settings: override the process environment, which overrides local.settings.json.
        only: the functions to run; if empty, host.json decides.
        cors: the web pages that may call; if None, local.settings.json decides.
        faults: the folder of the fault plan; the state folder by default.
        drain_seconds: how long functions may continue at the end.

    Raises:
        AppLoadError: the app cannot be loaded, or lacks a function named in `only`.
        OSError: the port is taken.
    """
    app, state = app.resolve(), state.resolve()
    local = LocalSettings.read(app)
    platform = {
        "AZURE_FUNCTIONS_ENVIRONMENT": "Development",
        "WEBSITE_HOSTNAME": f"{LOOPBACK}:{port}",
    }
    own = {_INSTANCE_ID: uuid.uuid4().hex}  # comes last: it must be unique to this process
    with contextlib.ExitStack() as surroundings:
        surroundings.enter_context(
            process_environment(
                {**platform, **local.app_settings, **os.environ, **app_settings, **own}
            )
        )
        options = HostOptions.read(app)
        state.mkdir(parents=True, exist_ok=True)
        # Copy the settings before the import: on Azure, changes that the app makes to its
        # environment do not reach the host. Names ignore case, as in .NET's configuration.
        settings: Mapping[str, str] = CIMultiDict(os.environ)
        surroundings.enter_context(contextlib.chdir(app))
        surroundings.enter_context(logs.configured(options.log_levels))
        surroundings.enter_context(importable(app))
        _require_python(settings)
        functions = load(app, settings, tuple(only) or options.functions)
        _require(only, functions)
        if unknown := _missing(options.functions, functions) if not only else []:
            _LOG.warning("functions of host.json names %s, not in the app", ", ".join(unknown))
        invoker = await _worker(app, functions, settings)
        logs.undo_silencing()
        host = Host(
            functions,
            options,
            port=port,
            state=state,
            keys=keys,
            settings=settings,
            cors=local.host.cors if cors is None else cors,
            injector=Injector(faults or state, Part.FUNCTIONS),
            invoker=invoker,
        )
        try:
            await host.start()
            function_list.log_findings(functions, host.faults)
            yield host
        finally:
            await host.stop(drain_seconds)


def _require(only: Sequence[str], functions: list[LoadedFunction]) -> None:
    """Check that the app has every function named in `only`."""
    if missing := _missing(only, functions):
        raise AppLoadError(f"the app has no function named {', '.join(missing)} (--functions)")


def _missing(names: Sequence[str], functions: list[LoadedFunction]) -> list[str]:
    loaded = {function.name.lower() for function in functions}
    return [name for name in names if name.lower() not in loaded]


def _require_python(settings: Mapping[str, str]) -> None:
    """Check that the app is not meant for another language's worker."""
    runtime = settings.get(_RUNTIME_SETTING) or "python"
    if runtime.lower() != "python":
        raise AppLoadError(
            f"the app setting {_RUNTIME_SETTING} is {runtime!r}, so a Python app has no functions "
            "on Azure; set it to python"
        )


async def _worker(
    app: Path, functions: Sequence[LoadedFunction], settings: Mapping[str, str]
) -> type[Invoker]:
    """The worker that is to run the functions.

    Raises:
        AppLoadError: the setting is not one of a worker, or Azure's cannot run the app.
    """
    name = settings.get(WORKER) or "localazure"
    if name == "localazure":
        return Invoker
    if name != "azure":
        raise AppLoadError(f"the app setting {WORKER} is {name!r}; set it to localazure or azure")
    from localazure.functions.worker import azure_worker

    await azure_worker.index(app, functions, thread_count(settings))
    return azure_worker.AzureInvoker


@contextlib.asynccontextmanager
async def serve(environment: Environment) -> AsyncGenerator[None]:
    """Run the environment's app as a part of the environment."""
    keys = KeyRing(
        master=environment.keys.functions_master,
        host=environment.keys.functions_host,
        system=environment.keys.functions_system,
    )
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(trusted(environment.ca_bundle))
        host = await stack.enter_async_context(
            run_app(
                environment.app,
                port=environment.ports.functions,
                state=environment.part_folder("functions"),
                faults=environment.state,
                keys=keys,
                app_settings=environment.app_settings,
            )
        )
        _LOG.info("%s", host.list_functions())
        # The signal that the supervisor sends: the part closes, then exits with RECYCLE_STATUS.
        host.on_recycle = functools.partial(os.kill, os.getpid(), signal.SIGTERM)
        yield
    if host.is_recycled:
        sys.exit(RECYCLE_STATUS)


async def start_host(
    app: Path,
    *,
    port: int | None,
    state: Path,
    enable_auth: bool = False,
    only: Sequence[str] = (),
    cors: CorsPolicy | None = None,
) -> bool:
    """Run an app alone until SIGTERM or SIGINT, as `func start` does.

    Returns:
        Whether the process must be restarted because a function exceeded functionTimeout.

    See `run_app` for the arguments and errors. The port is by default the one in
    local.settings.json, or else 7071. The keys are in the state folder; as with `func start`,
    requests need them only with `enable_auth`.
    """
    logging.basicConfig(level=logging.INFO)  # no effect if the caller configured logging
    HostOptions.read(app)  # fails before anything is written into a folder without an app
    make_state_folder(state)
    ring = KeyRing if enable_auth else OpenDoor
    stop = asyncio.Event()
    is_ended = False

    def end() -> None:
        nonlocal is_ended
        is_ended = True
        stop.set()

    end_on_signals(end)
    async with run_app(
        app,
        port=port or LocalSettings.read(app).host.local_http_port or DEFAULT_PORT,
        state=state,
        keys=ring.kept_in(state),
        app_settings={},
        only=only,
        cors=cors,
    ) as host:
        sys.stdout.write(f"\n{host.list_functions(logs.colours_for(sys.stdout))}\n\n")
        if enable_auth:
            sys.stdout.write(f"Keys: {state / 'keys.json'}\n")
        sys.stdout.flush()
        host.on_recycle = stop.set
        end_on_signals(end, on_interrupt=lambda: _show_interrupt(host))
        async with memory.kept_low():
            await stop.wait()
    return host.is_recycled and not is_ended


def _show_interrupt(host: Host) -> None:
    running = host.invoker.running
    waits_for = f"waiting up to {DRAIN_SECONDS:.0f} s for {', '.join(running)}" if running else ""
    sys.stdout.write(f"\nstopping{': ' if running else ''}{waits_for}; Ctrl-C again ends at once\n")
    sys.stdout.flush()
