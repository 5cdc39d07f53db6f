"""The supervisor of `localazure up`: prepares the environment and keeps every part running.

1. Lock the state folder; a second `up` on it is refused with the first one's process id. The parts
   hold the lock too, so that no second set starts while the first one is still ending.
2. Take ports and keys from the state folder, or draw them; name a port that is in use.
3. Start every service as a process and wait until all are ready; then the Functions host, if the
   folder has an app.
4. Write `endpoints.json`; restart a part that dies, with growing pauses.
5. On SIGINT or SIGTERM end the Functions host, then the services together, each gracefully, and
   leave no process.

If the supervisor itself is killed, its parts read the end of their stdin and end too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil

from localazure.errors import StartError
from localazure.processes import owner_lock
from localazure.processes.atomic_file import write_atomically
from localazure.processes.lifetime import RECYCLE_STATUS, end
from localazure.processes.owner_lock import OwnedElsewhere
from localazure.processes.ports import free_address
from localazure.processes.state_folder import make_state_folder
from localazure.runtime.app_settings import expand_app_settings
from localazure.runtime.certificates import ensure_certificates
from localazure.runtime.endpoints import describe_endpoints
from localazure.runtime.environment import (
    AMQPS_PORT,
    HOSTS,
    LISTENERS,
    LOOPBACK,
    Environment,
    Ports,
    has_app,
)
from localazure.runtime.part import READY_FD_VARIABLE

DEFAULT_PORT_BASE = 7070
SERVICES = ("telemetry", "storage", "servicebus", "eventgrid", "machinelearning")
FUNCTIONS = "functions"  # starts after the services, and is the first to stop
# A part needs a few seconds; on a machine with fifteen busy programs for each core, over a minute.
READY_TIMEOUT_SECONDS = 180.0
# A part ends its own children and drains; the Functions host has in-flight invocations.
STOP_TIMEOUT_SECONDS = 20.0
RESTART_PAUSES_SECONDS = (0.0, 1.0, 2.0, 5.0, 10.0)
# A part that ran this long has recovered: its next restart begins with the first pause.
HEALTHY_AFTER_SECONDS = 60.0
LOCK_POLL_SECONDS = 0.1
LOG_TAIL_LINES = 20


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command line; all paths are absolute."""

    app: Path
    state: Path
    port_base: int | None
    """None keeps the state folder's ports (at first the default ones); 0 takes free ones."""
    config: Path
    """The folder of the parts' files; a missing file declares nothing."""
    app_settings: Path
    hosts: int = 1
    """Functions hosts, on one port and one task hub."""


def find_config(app: Path) -> Path:
    """The folder that describes an app's local cloud: `infra/local`, or `.localazure/config`."""
    local = app / "infra" / "local"
    return local if local.is_dir() else app / ".localazure" / "config"


@contextlib.asynccontextmanager
async def lock_state(state: Path, notify: Callable[[str], None]) -> AsyncGenerator[int]:
    """Lock a state folder until the context, and every process that inherits the lock, has ended.

    If its owner was killed and its parts are still ending, wait for them.

    Yields:
        The descriptor that holds the lock.

    Raises:
        StartError: another process owns it.
    """
    make_state_folder(state)
    deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
    is_told = False
    while True:
        try:
            file = owner_lock.acquire(state / "lock")
            break
        except OwnedElsewhere as error:
            if error.owner is None or is_alive(error.owner) or time.monotonic() > deadline:
                raise StartError(
                    f"state folder {state} is in use by process {error.owner or '(unknown)'}: "
                    "stop that one, or give another folder with --state"
                ) from None
            if not is_told:
                notify(f"process {error.owner} was killed; waiting for its parts to end")
                is_told = True
            await asyncio.sleep(LOCK_POLL_SECONDS)
    with file:
        yield file.fileno()


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def draw_environment(options: Options) -> Environment:
    """The environment of the state folder, updated with the options of the command line.

    Raises:
        StartError: a port is in use; the message names it and the part that uses it.
        ConfigurationError: the app-settings file is malformed.
    """
    try:
        known = Environment.load(options.state)
    except FileNotFoundError:
        known = None
    if options.port_base is not None:
        ports = Ports.from_base(options.port_base) if options.port_base else Ports.draw()
    else:
        ports = known.ports if known else Ports.from_base(DEFAULT_PORT_BASE)
    for name, port in asdict(ports).items():
        _refuse_in_use(name, LOOPBACK, port, "or give another --port-base (0 takes free ports)")
    environment = Environment.draw(
        options.state, app=options.app, config=options.config, ports=ports
    )
    if known is None:
        environment = replace(environment, service_bus_host=free_address(AMQPS_PORT))
    else:
        environment = replace(environment, keys=known.keys, service_bus_host=known.service_bus_host)
    # Of the clients with an identity, which know no other port.
    host = environment.service_bus_host
    _refuse_in_use("service_bus", host, AMQPS_PORT, "such as another localazure")
    return replace(environment, app_settings=expand_app_settings(environment, options.app_settings))


def _refuse_in_use(listener: str, address: str, port: int, remedy: str) -> None:
    try:
        socket.create_server((address, port)).close()
    except OSError as error:
        raise StartError(
            f"{LISTENERS[listener].part} cannot have port {port} of {address} (for {listener}): "
            f"{os.strerror(error.errno or 0)}; end what listens there, {remedy}"
        ) from None


class PartProcess:
    """The process of one part.

    Args:
        name: of the part; one of several of a kind has a number behind it (`functions-2`).
        state: the state folder.
        lock: the descriptor that holds its lock.
        variables: of the process environment, beside the supervisor's own.
    """

    def __init__(
        self, name: str, state: Path, lock: int, variables: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.state = state
        self._lock = lock
        self._variables = variables or {}
        self._process: asyncio.subprocess.Process | None = None
        self._log_start_bytes = 0

    @property
    def log_path(self) -> Path:
        """The file with its output."""
        return self.state / "logs" / f"{self.name}.log"

    async def start(self) -> None:
        """Start it and wait until it is ready.

        Raises:
            StartError: it ended, or was not ready in time; the message holds the end of its log.
        """
        self.log_path.parent.mkdir(exist_ok=True)
        ready, announce = os.pipe()
        with self.log_path.open("ab") as log:
            self._log_start_bytes = log.tell()
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "localazure.runtime.part", self.name.partition("-")[0], str(self.state)),
                stdin=asyncio.subprocess.PIPE,  # its end notifies the part of our death
                stdout=log,
                stderr=log,
                pass_fds=(announce, self._lock),
                env={
                    **os.environ,
                    **self._variables,
                    READY_FD_VARIABLE: str(announce),
                    "PYTHONUNBUFFERED": "1",
                },
                # Ctrl-C is for the supervisor, which then ends the host before the services.
                start_new_session=True,
            )
        os.close(announce)
        try:
            is_ready = await _read_ready(ready)
        except TimeoutError:
            await self.stop()
            raise StartError(
                f"{self.name} was not ready within {READY_TIMEOUT_SECONDS:.0f} s and was ended; if "
                f"the machine is busy, start again when it is less so. Its log:\n{self.log_tail()}"
            ) from None
        if not is_ready:
            await self.stop()
            raise StartError(f"{self.name} did not start:\n{self.log_tail()}")

    async def ended(self) -> int:
        """Wait for its end; the exit status, negative for a signal."""
        assert self._process is not None
        return await self._process.wait()

    async def stop(self) -> None:
        """End it by SIGTERM, or by SIGKILL if that takes too long."""
        if self._process is not None:
            await end(self._process, within_seconds=STOP_TIMEOUT_SECONDS)

    def log_tail(self) -> str:
        """The end of its log since the last start."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start_bytes)
            lines = log.read().decode(errors="replace").splitlines()
        if len(lines) > LOG_TAIL_LINES:
            lines = [f"(more in {self.log_path})", *lines[-LOG_TAIL_LINES:]]
        return "\n".join(lines)


async def _read_ready(descriptor: int) -> bool:
    """Whether the part became ready; False if it died.

    Raises:
        TimeoutError: it took longer than `READY_TIMEOUT_SECONDS`.
    """
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb")
    )
    try:
        return bool(await asyncio.wait_for(reader.read(1), READY_TIMEOUT_SECONDS))
    finally:
        transport.close()


@contextlib.asynccontextmanager
async def running(
    options: Options, notify: Callable[[str], None]
) -> AsyncGenerator[tuple[Environment, asyncio.Task[None]]]:
    """Run all parts while the context lasts; they are ready when it begins.

    Yields:
        The environment, and a task that keeps the parts running and fails with a `StartError` when
        one of them cannot be restarted.

    Raises:
        StartError: see `lock_state`, `draw_environment` and `PartProcess.start`.
    """
    async with lock_state(options.state, notify) as lock:
        environment = draw_environment(options)
        ensure_certificates(environment)
        environment.save()
        endpoints = options.state / "endpoints.json"
        endpoints.unlink(missing_ok=True)
        # aiohttp reads the roots when it is imported, which is before the app's settings.
        roots = {"SSL_CERT_FILE": str(environment.ca_bundle)}
        services = [PartProcess(name, options.state, lock) for name in SERVICES]
        hosts = [
            PartProcess(name, options.state, lock, roots | {HOSTS: str(options.hosts)})
            for name in _names_of_hosts(options.hosts if has_app(options.app) else 0)
        ]
        parts = [*services, *hosts]
        try:
            # The host's triggers need the services.
            for group in (services, hosts):
                async with asyncio.TaskGroup() as tasks:
                    for part in group:
                        tasks.create_task(_start(part, notify))
            write_atomically(endpoints, json.dumps(describe_endpoints(environment), indent=2))
            keeper = asyncio.create_task(_keep_running(parts, notify))
            try:
                yield environment, keeper
            finally:
                keeper.cancel()
                await asyncio.gather(keeper, return_exceptions=True)
        except* StartError as errors:
            raise StartError("\n".join(str(error) for error in errors.exceptions)) from None
        finally:
            for group in (hosts, services):
                await asyncio.gather(*(part.stop() for part in group))
            endpoints.unlink(missing_ok=True)


def _names_of_hosts(count: int) -> list[str]:
    return [FUNCTIONS if number == 1 else f"{FUNCTIONS}-{number}" for number in range(1, count + 1)]


async def _start(part: PartProcess, notify: Callable[[str], None]) -> None:
    began = time.monotonic()
    await part.start()
    notify(f"{part.name} is ready ({time.monotonic() - began:.1f} s)")


async def _keep_running(parts: list[PartProcess], notify: Callable[[str], None]) -> None:
    async with asyncio.TaskGroup() as group:
        for part in parts:
            group.create_task(keep_part_running(part, notify))


async def keep_part_running(
    part: PartProcess,
    notify: Callable[[str], None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Start a part again whenever it has ended, until cancelled.

    Raises:
        StartError: it died again soon after every pause.
    """
    deaths = 0
    while True:
        began = time.monotonic()
        status = await part.ended()
        is_recycled = status == RECYCLE_STATUS
        if is_recycled or time.monotonic() - began > HEALTHY_AFTER_SECONDS:
            deaths = 0
        if deaths == len(RESTART_PAUSES_SECONDS):
            raise StartError(
                f"{part.name} keeps dying:\n{part.log_tail()}\n"
                f"All parts end. State is kept: {part.state} has what was acknowledged, and the "
                "next `localazure up` on it goes on from there. If this part then dies again, "
                f"move {part.state / part.name} away: it begins empty, the others keep theirs"
            )
        if is_recycled:
            notify(f"{part.name}: a function exceeded functionTimeout; its process is recycled")
        else:
            how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            notify(f"{part.name} ended ({how}): starting it again")
            await sleep(RESTART_PAUSES_SECONDS[deaths])
            deaths += 1
        try:
            await _start(part, notify)
        except StartError as error:
            notify(str(error))  # counts as a death: `ended` returns at once
