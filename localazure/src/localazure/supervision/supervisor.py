"""The supervisor of `localazure up`: prepares the environment and keeps all parts running.

1. Lock the state folder; a second `up` on it is refused with the first one's process id. The parts
   hold the lock, too, so that no new parts start while old ones are still stopping.
2. Load ports and keys from the state folder, or draw them; fail if a port is in use.
3. Start each service as a process and wait until all are ready; then start the Functions host, if
   the folder has an app.
4. Write `endpoints.json`; restart a part that dies, with increasing pauses.
5. On SIGINT or SIGTERM, stop the Functions host, then all services, each gracefully, and leave no
   process.

If the supervisor is killed, its parts read the end of their stdin, and stop, too.
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
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil

from localazure.errors import StartError
from localazure.processes import log_rotation, owner_lock
from localazure.processes.atomic_file import write_atomically
from localazure.processes.background import cancel
from localazure.processes.lifetime import RECYCLE_STATUS, end
from localazure.processes.owner_lock import OwnedElsewhere
from localazure.processes.ports import free_address, unix_socket
from localazure.processes.state_folder import make_state_folder, writable
from localazure.runtime.certificates import ensure_certificates
from localazure.runtime.environment import (
    AMQPS_PORT,
    ENGINE,
    LISTENERS,
    LOOPBACK,
    Environment,
    Ports,
    has_app,
)
from localazure.supervision.app_settings import expand_app_settings
from localazure.supervision.endpoints import describe_endpoints
from localazure.supervision.part import READY_FD_VARIABLE

DEFAULT_PORT_BASE = 7070
SERVICES = ("storage", "servicebus", "eventgrid", "machinelearning")
FUNCTIONS = "functions"  # starts after the services and stops before them
DURABLE = "functions.durable"  # the engine of several hosts: starts before them, stops after them
# A part needs a few seconds; with fifteen busy processes per core, more than a minute.
READY_TIMEOUT_SECONDS = 180.0
# A part stops its children and drains; the Functions host waits for running invocations.
STOP_TIMEOUT_SECONDS = 20.0
RESTART_PAUSES_SECONDS = (0.0, 1.0, 2.0, 5.0, 10.0)
# A part that ran this long has recovered: its next restart has the first pause.
HEALTHY_AFTER_SECONDS = 60.0
LOCK_POLL_SECONDS = 0.1
LOG_TAIL_LINES = 20
LOG_BYTES = 10 * 2**20
"""The size of a part's log from which on it is rotated."""
LOG_CHECK_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command line; all paths are absolute."""

    app: Path
    state: Path
    port_base: int | None
    """None: the state folder's ports, or the default ones; 0: free ports."""
    config: Path
    """The folder with the parts' files; a missing file declares nothing."""
    app_settings: Path
    hosts: int = 1
    """The number of Functions hosts, on one port and one task hub."""


def find_config(app: Path) -> Path:
    """Return the folder that configures an app's parts: `infra/local`, or `.localazure/config`."""
    local = app / "infra" / "local"
    return local if local.is_dir() else app / ".localazure" / "config"


@contextlib.asynccontextmanager
async def lock_state(state: Path, notify: Callable[[str], None]) -> AsyncGenerator[int]:
    """Lock a state folder until the context and all processes that inherit the lock have ended.

    If the owner was killed and its parts are still stopping, wait for them.

    Yields:
        The file descriptor of the lock.

    Raises:
        StartError: another process holds the lock, or the folder cannot be written.
    """
    make_state_folder(state)
    deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
    is_logged = False
    while True:
        try:
            with writable(state):
                file = owner_lock.acquire(state / "lock")
            break
        except OwnedElsewhere as error:
            if error.owner is None or is_alive(error.owner) or time.monotonic() > deadline:
                raise StartError(
                    f"state folder {state} is in use by process {error.owner or '(unknown)'}: "
                    "stop that one, or give another folder with --state"
                ) from None
            if not is_logged:
                notify(f"process {error.owner} was killed; waiting for its parts to end")
                is_logged = True
            await asyncio.sleep(LOCK_POLL_SECONDS)
    with file:
        yield file.fileno()


def is_alive(pid: int) -> bool:
    """Whether a process runs; False for a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def draw_environment(options: Options) -> Environment:
    """Return the state folder's environment, updated with the command-line options.

    Raises:
        StartError: a port is in use; the message names it and the part that uses it.
        ConfigurationError: the app-settings file is malformed.
    """
    try:
        earlier = Environment.load(options.state)
    except FileNotFoundError:
        earlier = None
    if options.port_base is not None:
        ports = Ports.from_base(options.port_base) if options.port_base else Ports.draw()
    else:
        ports = earlier.ports if earlier else Ports.from_base(DEFAULT_PORT_BASE)
    for name, port in asdict(ports).items():
        _refuse_in_use(name, LOOPBACK, port, "or give another --port-base (0 takes free ports)")
    environment = Environment.draw(
        options.state, app=options.app, config=options.config, ports=ports
    )
    if earlier is None:
        environment = replace(environment, service_bus_host=free_address(AMQPS_PORT))
    else:
        environment = replace(
            environment, keys=earlier.keys, service_bus_host=earlier.service_bus_host
        )
    # Clients with an identity always use this port.
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
        name: the part's name, with a number if there are several (`functions-2`).
        state: the state folder.
        lock: the file descriptor of the state folder's lock.
        variables: environment variables to add to the supervisor's.
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
        """The file with the part's output."""
        return self.state / "logs" / f"{self.name}.log"

    @property
    def folder(self) -> Path:
        """The folder with the part's state; the hosts and their engine have one."""
        return self.state / self.name.partition("-")[0].partition(".")[0]

    async def start(self) -> None:
        """Start the part and wait until it is ready.

        Raises:
            StartError: it ended, or was not ready in time. The message has the end of its log.
        """
        self.log_path.parent.mkdir(exist_ok=True)
        ready, announce = os.pipe()
        with self.log_path.open("ab") as log:
            self._log_start_bytes = log.tell()
            part = self.name.partition("-")[0]  # several hosts are functions-1, functions-2
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "localazure.supervision.part", part, str(self.state)),
                stdin=asyncio.subprocess.PIPE,  # its end tells the part that the supervisor died
                stdout=log,
                stderr=log,
                pass_fds=(announce, self._lock),
                env={
                    **os.environ,
                    **self._variables,
                    READY_FD_VARIABLE: str(announce),
                    "PYTHONUNBUFFERED": "1",
                },
                # Ctrl-C goes only to the supervisor, which stops the host before the services.
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
        """Wait for the part's end; return the exit status, negative for a signal."""
        assert self._process is not None
        return await self._process.wait()

    async def stop(self) -> None:
        """Stop the part with SIGTERM, or with SIGKILL after a timeout."""
        if self._process is not None:
            await end(self._process, within_seconds=STOP_TIMEOUT_SECONDS)

    def rotate_log(self, limit_bytes: int) -> None:
        """Begin a new log if the log is too large; the one before is kept as `<name>.log.1`."""
        if log_rotation.rotate(self.log_path, limit_bytes=limit_bytes):
            self._log_start_bytes = 0

    def log_tail(self) -> str:
        """Return the last lines of the part's log since its last start."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start_bytes)
            lines = log.read().decode(errors="replace").splitlines()
        if len(lines) > LOG_TAIL_LINES:
            lines = [f"(more in {self.log_path})", *lines[-LOG_TAIL_LINES:]]
        return "\n".join(lines)


async def _read_ready(descriptor: int) -> bool:
    """Wait until the part is ready. Returns False if it died.

    Raises:
        TimeoutError: the part took longer than `READY_TIMEOUT_SECONDS`.
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
    """Run all parts while the context lasts. They are ready when it starts.

    Yields:
        The environment, and a task that keeps the parts running and fails with a `StartError` when
        one of them cannot be restarted.

    Raises:
        StartError: see `lock_state`, `draw_environment` and `PartProcess.start`.
    """
    async with contextlib.AsyncExitStack() as stack:
        lock = await stack.enter_async_context(lock_state(options.state, notify))
        address = stack.enter_context(unix_socket())
        environment = draw_environment(options)
        ensure_certificates(environment)
        environment.save()
        endpoints = options.state / "endpoints.json"
        endpoints.unlink(missing_ok=True)
        # aiohttp reads the roots at its import, before the app's settings are applied.
        roots = {"SSL_CERT_FILE": str(environment.ca_bundle)}
        services = [PartProcess(name, options.state, lock) for name in SERVICES]
        names = _names_of_hosts(options.hosts if has_app(options.app) else 0)
        of_engine = {ENGINE: str(address)} if len(names) > 1 else {}
        engine = [PartProcess(DURABLE, options.state, lock, roots | of_engine) for _ in of_engine]
        hosts = [PartProcess(name, options.state, lock, roots | of_engine) for name in names]
        # The host's triggers need the services.
        groups = [services, engine, hosts]
        try:
            for group in groups:
                async with asyncio.TaskGroup() as tasks:
                    for part in group:
                        tasks.create_task(_start(part, notify))
            write_atomically(endpoints, json.dumps(describe_endpoints(environment), indent=2))
            keeper = asyncio.create_task(_keep_running([*services, *engine, *hosts], notify))
            try:
                yield environment, keeper
            finally:
                await cancel(keeper)
        except* StartError as errors:
            raise StartError("\n".join(str(error) for error in errors.exceptions)) from None
        finally:
            for group in reversed(groups):
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
        group.create_task(keep_logs_small(parts, LOG_BYTES, notify))
        for part in parts:
            group.create_task(keep_part_running(part, notify))


async def keep_logs_small(
    parts: Sequence[PartProcess],
    limit_bytes: int,
    notify: Callable[[str], None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Rotate the parts' logs whenever one of them is too large, until cancelled."""
    while True:
        for part in parts:
            try:
                await asyncio.to_thread(part.rotate_log, limit_bytes)
            except OSError as error:  # such as a full disk
                notify(f"the log of {part.name} could not be rotated: {error}")
        await sleep(LOG_CHECK_SECONDS)


async def keep_part_running(
    part: PartProcess,
    notify: Callable[[str], None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Restart a part each time it ends, until cancelled.

    Raises:
        StartError: the part died soon after each of its restarts.
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
                f"move {part.folder} away: it begins empty, the others keep theirs"
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
            notify(str(error))  # counted in the next round, where `ended` returns at once
