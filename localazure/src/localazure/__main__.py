"""The command line `localazure`: `up`, `start`, `scheduler`, `faults` and `fetch`."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from http.client import HTTPException
from pathlib import Path

from localazure.errors import StartError, shown_without_traceback
from localazure.faults.current_plan import find_plan, read_plan, remove_plan, set_plan
from localazure.faults.plan import moderate
from localazure.processes import memory
from localazure.processes.interruption import end_on_signals
from localazure.processes.lifetime import LAST_SECONDS, ends_soon_after
from localazure.processes.state_folder import keeping_private
from localazure.runtime.environment import (
    LOOPBACK,
    RUN_ACTIVITIES_TWICE,
    WORKER,
    Environment,
    has_app,
)
from localazure.storage.azurite_installation import ensure_azurite
from localazure.supervision.function_report import errors_of_functions
from localazure.supervision.supervisor import (
    DEFAULT_PORT_BASE,
    Options,
    find_config,
    running,
)


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parsed = _parser().parse_args(arguments)
    parsed.arguments = arguments
    if getattr(parsed, "hosts", 1) < 1:
        sys.stderr.write("localazure: --hosts must be 1 or more\n")
        return 2
    for name in (RUN_ACTIVITIES_TWICE, WORKER):
        if (value := getattr(parsed, name, None)) is not None:
            os.environ[name] = str(value)  # for the host, in this or another process
    try:
        with shown_without_traceback("localazure: "):
            return asyncio.run(parsed.run(parsed))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="localazure",
        description="Azure Functions and the services around them, on this machine's loopback.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    up = commands.add_parser(
        "up", help="run all services, and the app if the folder has one, until Ctrl-C"
    )
    up.add_argument("--app", type=Path, default=Path(), help="the app's folder (default: here)")
    up.add_argument(
        "--state", type=Path, help="folder that keeps all state (default: APP/.localazure)"
    )
    up.add_argument(
        "--port-base",
        type=int,
        help="ports are at fixed offsets from it; 0 takes free ones "
        f"(default: the state folder's, at first {DEFAULT_PORT_BASE})",
    )
    up.add_argument(
        "--config",
        type=Path,
        metavar="DIR",
        help="folder of storage.json, Config.json (Service Bus), event-grid.json, azure-ml.json "
        "and app-settings.json, each optional (default: APP/infra/local, or else "
        "APP/.localazure/config)",
    )
    up.add_argument("--app-settings", type=Path, help="(default: DIR/app-settings.json)")
    _add_strictness(up)
    up.set_defaults(run=_up)

    start = commands.add_parser(
        "start",
        help="run the Functions host alone, as func start does",
        allow_abbrev=False,  # `_start` removes only the full name --watch
    )
    start.add_argument("app", type=Path, nargs="?", default=Path(), help="the app's folder")
    start.add_argument(
        "--port", type=int, help="(default: local.settings.json's Host.LocalHttpPort, or 7071)"
    )
    start.add_argument(
        "--enable-auth", action="store_true", help="ask for keys, as on Azure; func does not"
    )
    start.add_argument(
        "--state", type=Path, help="folder that keeps all state (default: APP/.localazure)"
    )
    start.add_argument(
        "--watch", action="store_true", help="restart the host whenever the app's files change"
    )
    start.add_argument(
        "--functions", nargs="+", default=(), metavar="NAME", help="run these functions only"
    )
    start.add_argument(
        "--cors",
        metavar="ORIGINS",
        help="web pages that may call, such as https://a.example,https://b.example or * "
        "(default: local.settings.json's Host.CORS)",
    )
    start.add_argument(
        "--cors-credentials", action="store_true", help="with --cors: and may send cookies"
    )
    _add_strictness(start)
    start.set_defaults(run=_start)

    scheduler = commands.add_parser(
        "scheduler", help="run a Durable Task Scheduler, for programs of the Durable Task SDKs"
    )
    scheduler.add_argument("--port", type=int, default=8080, help="(default: %(default)s)")
    scheduler.add_argument(
        "--page-port", type=int, default=8082, help="of its page; 0: none (default: %(default)s)"
    )
    scheduler.add_argument(
        "--state",
        type=Path,
        default=Path(".localazure"),
        help="folder that keeps all state (default: %(default)s)",
    )
    scheduler.set_defaults(run=_scheduler)

    faults = commands.add_parser(
        "faults",
        help="inject faults by a plan into the services of a state folder, or stop that",
    )
    choice = faults.add_mutually_exclusive_group()
    choice.add_argument("plan", type=Path, nargs="?", help="a file; docs/faults.md has the format")
    choice.add_argument(
        "--moderate", type=int, metavar="SEED", help="a plan that a sound app survives"
    )
    choice.add_argument("--off", action="store_true", help="no faults from now on")
    faults.add_argument(
        "--state", type=Path, default=Path(".localazure"), help="(default: %(default)s)"
    )
    faults.set_defaults(run=_faults)

    fetch = commands.add_parser(
        "fetch", help="fetch Azurite, the storage emulator, now and not at the first `up`"
    )
    fetch.set_defaults(run=_fetch)
    return parser


def _add_strictness(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--hosts",
        type=int,
        default=1,
        metavar="N",
        help="run so many hosts on one task hub and one port, as Azure does when it scales out "
        "(default: one, which has the task hub's engine in its process)",
    )
    command.add_argument(
        "--run-activities-twice",
        dest=RUN_ACTIVITIES_TWICE,
        action="store_const",
        const="true",
        help="run each activity that succeeded once more and take the second result, as Azure may "
        f"after it lost a worker (the same as the app setting {RUN_ACTIVITIES_TWICE}=true)",
    )

    command.add_argument(
        "--worker",
        dest=WORKER,
        choices=["localazure", "azure"],
        help="azure: run the functions by the library of Azure's own worker, for Python 3.13 and "
        f"later (the same as the app setting {WORKER}; pip install 'localazure[worker]')",
    )


def _options(parsed: argparse.Namespace) -> Options:
    app: Path = parsed.app.resolve()
    if not app.is_dir():
        raise StartError(f"--app {app} is not a folder")
    if parsed.config is not None and not parsed.config.is_dir():
        raise StartError(f"--config {parsed.config} is not a folder")
    config = (parsed.config or find_config(app)).resolve()
    return Options(
        app=app,
        state=(parsed.state or app / ".localazure").resolve(),
        port_base=parsed.port_base,
        config=config,
        app_settings=parsed.app_settings or config / "app-settings.json",
        hosts=parsed.hosts,
    )


async def _up(parsed: argparse.Namespace) -> int:
    options = _options(parsed)
    main_task = asyncio.current_task()
    assert main_task is not None
    end_on_signals(main_task.cancel, on_interrupt=_show_interrupt)
    ensure_azurite(_notify)
    with keeping_private():
        async with running(options, _notify) as (environment, keeper):
            show_endpoints(environment)
            if has_app(environment.app):
                await _show_functions(environment)
            print("ready; Ctrl-C ends it", flush=True)
            await keeper
    return 0


def _show_interrupt() -> None:
    _notify(
        "stopping: waiting for functions that run, then for each part; Ctrl-C again ends at once"
    )


def _notify(line: str) -> None:
    print(f"localazure: {line}", flush=True)


async def _show_functions(environment: Environment) -> None:
    try:
        errors = await asyncio.to_thread(errors_of_functions, environment)
    except (OSError, HTTPException) as error:  # it may be restarting
        _notify(f"the Functions host did not report which functions are in error: {error}")
        return
    for name, text in errors.items():
        _notify(f"The '{name}' function is in error: {text}")


def show_endpoints(environment: Environment) -> None:
    """Print the addresses of all services."""
    ports = environment.ports
    if has_app(environment.app):
        print(f"  {'Functions':<12} {environment.functions_url}")
    else:
        print(f"  (no host.json in {environment.app}: the services run without an app)")
    for name, where in (
        ("Blob", f"http://{LOOPBACK}:{ports.blob}"),
        ("Queue", f"http://{LOOPBACK}:{ports.queue}"),
        ("Table", f"http://{LOOPBACK}:{ports.table}"),
        ("Service Bus", f"sb://{LOOPBACK}:{ports.service_bus}"),
        ("Event Grid", f"http://{LOOPBACK}:{ports.event_grid}"),
        ("Azure ML", environment.azure_ml_url),
    ):
        print(f"  {name:<12} {where}")
    print(f"  keys, connection strings, app settings: {environment.state / 'endpoints.json'}")
    print(f"  logs: {environment.state / 'logs'}")


async def _faults(parsed: argparse.Namespace) -> int:
    """Set or remove the plan, if an option says so, and print the plan of the state folder."""
    if parsed.off:
        remove_plan(parsed.state)
    elif parsed.moderate is not None:
        set_plan(parsed.state, moderate(parsed.moderate))
    elif parsed.plan is not None:
        set_plan(parsed.state, read_plan(parsed.plan))
    plan = find_plan(parsed.state)
    print("no faults" if plan is None else plan.model_dump_json(by_alias=True, indent=2))
    return 0


async def _scheduler(parsed: argparse.Namespace) -> int:
    try:
        from localazure.scheduler.server import run  # noqa: PLC0415 - an extra; it loads gRPC
    except ModuleNotFoundError as error:
        raise StartError(
            f"{error}: the scheduler needs pip install 'localazure[scheduler]'"
        ) from error
    await run(parsed.state.resolve(), parsed.port, parsed.page_port)
    return 0


async def _fetch(_parsed: argparse.Namespace) -> int:
    ensure_azurite(_notify)
    return 0


async def _start(parsed: argparse.Namespace) -> int:
    # Modules of the host are imported where they are used, because `up` runs it in another process.
    app: Path = parsed.app.resolve()
    state: Path = (parsed.state or app / ".localazure").resolve()
    if parsed.watch:
        from localazure.functions.watch import keep_running  # noqa: PLC0415 - see above

        arguments = [one for one in parsed.arguments if one != "--watch"]
        return await keep_running([sys.executable, "-m", "localazure", *arguments], app)
    if parsed.hosts > 1:
        from localazure.functions.several_processes import run_hosts  # noqa: PLC0415 - see above

        # Each process runs one host: the last --hosts applies.
        command = [sys.executable, "-m", "localazure", *parsed.arguments, "--hosts", "1"]
        return await run_hosts(command, parsed.hosts, state, _notify)
    with memory.starting(), ends_soon_after(within_seconds=LAST_SECONDS):
        from localazure.functions.http.cors import CorsPolicy  # noqa: PLC0415 - see above
        from localazure.functions.service import start_host  # noqa: PLC0415 - see above

        cors = None
        if parsed.cors is not None:
            try:
                cors = CorsPolicy.parse(parsed.cors, allows_credentials=parsed.cors_credentials)
            except ValueError as error:
                raise StartError(f"--cors: {error}") from None
        is_recycled = await start_host(
            app,
            port=parsed.port,
            state=state,
            enable_auth=parsed.enable_auth,
            only=parsed.functions,
            cors=cors,
        )
        if is_recycled:  # inside the block, because a thread of the app may block its exit
            os.execv(sys.executable, [sys.executable, "-m", "localazure", *parsed.arguments])  # noqa: S606 - this very command, again
    return 0


if __name__ == "__main__":
    sys.exit(main())
