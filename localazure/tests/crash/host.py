"""One run of the Functions host, or of the engine, in a process that may be killed at any time.

The process is forked from a server with all imports, so it starts in milliseconds. It runs the
whole host, from the HTTP server to SQLite.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import MappingProxyType
from typing import Final

import psutil

from localazure.functions.durable.hosts.engine_server import serving
from localazure.functions.http.authorization import KeyRing
from localazure.functions.service import run_app
from localazure.processes.ports import LOOPBACK, free_ports
from localazure.sqlite import crash_points

APP: Final = Path(__file__).parent / "app"
KEYS: Final = KeyRing(master="master", host="host", system="system")

HEARTBEAT_SECONDS: Final = 1.0

Serve = Callable[[], AbstractAsyncContextManager[object]]

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([__name__, "localazure.functions.triggers.durable.functions"])


class Folder:
    """A new folder with the host's state and the functions' files.

    Attributes:
        state: the host's state folder.
        database: the engine's store.
        journal: the activities' journal.
        marks: the folder for marks of activities that fail the first time.
        release: the file that lets the activity `held` return.
        log: the output of all runs.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = path / "state"
        self.database = self.state / "durable.db"
        self.journal = path / "journal"
        self.marks = path / "marks"
        self.release = path / "release"
        self.log = path / "host.log"
        self.marks.mkdir(parents=True)
        self.journal.touch()


class KilledProcess:
    """A process from its start to its end.

    Args:
        folder: the folder with its state and its log.
        serve: runs it in a context.
        crash: the crash point at which it ends itself and the number of passes; None: none.
    """

    def __init__(self, folder: Folder, serve: Serve, crash: tuple[str, int] | None) -> None:
        self._ready, theirs = _processes.Pipe(duplex=False)
        self._process: BaseProcess = _processes.Process(
            target=_run, args=(folder.log, serve, crash, theirs)
        )
        self._process.start()
        self._is_ready = False
        self.has_ended = False
        """Whether `wait` has returned."""
        theirs.close()

    async def ready(self) -> bool:
        """Wait until it is ready. Returns False if it died before."""
        if not self._is_ready:
            with contextlib.suppress(EOFError):
                self._is_ready = await asyncio.to_thread(self._ready.recv_bytes) == b"ready"
        return self._is_ready

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()

    def send(self, signum: signal.Signals) -> None:
        """Send a signal."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signum)

    @property
    def is_stopped(self) -> bool:
        """Whether SIGSTOP has taken effect, which takes some time on a busy machine."""
        return psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED

    def end(self) -> None:
        """Send SIGTERM, so that the host drains."""
        self._process.terminate()

    async def wait(self) -> int:
        """Wait for the process's end; return the exit status, negative for a signal."""
        await asyncio.to_thread(connection.wait, [self._process.sentinel])
        self._process.join()  # not in a thread: the start of a process polls all others
        self.has_ended = True
        code = self._process.exitcode
        assert code is not None
        return code


class HostProcess(KilledProcess):
    """A host. `settings` are app settings in addition to the folder's."""

    def __init__(
        self,
        folder: Folder,
        crash: tuple[str, int] | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        (port,) = free_ports(1)
        self.base_url = f"http://{LOOPBACK}:{port}"
        paths = {
            "JOURNAL": str(folder.journal),
            "MARKS": str(folder.marks),
            "RELEASE": str(folder.release),
        }
        settings = {**paths, **settings}
        serve = partial(
            run_app, APP, port=port, state=folder.state, keys=KEYS, app_settings=settings
        )
        super().__init__(folder, serve, crash)


class EngineProcess(KilledProcess):
    """An engine for several hosts, at the Unix socket `address`."""

    def __init__(self, folder: Folder, address: Path, crash: tuple[str, int] | None = None) -> None:
        serve = partial(serving, address, folder.database, folder.state, HEARTBEAT_SECONDS)
        super().__init__(folder, serve, crash)


def _run(log: Path, serve: Serve, crash: tuple[str, int] | None, ready: Connection) -> None:
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    if crash is not None:
        crash_points.arm(*crash)
    asyncio.run(_serve(serve, ready))


async def _serve(serve: Serve, ready: Connection) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    # The other end closes only when the process that holds it dies.
    loop.add_reader(ready.fileno(), os._exit, 1)
    async with serve():
        ready.send_bytes(b"ready")
        await stop.wait()
