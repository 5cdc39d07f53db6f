"""One run of the Functions host, in a process that may be killed at any time.

The process is forked from a server with all imports, so it starts in milliseconds. It runs the
whole host, from the HTTP server to SQLite.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Mapping
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import MappingProxyType
from typing import Final

import psutil

from localazure.functions.http.authorization import KeyRing
from localazure.functions.service import run_app
from localazure.processes.ports import LOOPBACK, free_ports
from localazure.sqlite import crash_points

APP: Final = Path(__file__).parent / "app"
KEYS: Final = KeyRing(master="master", host="host", system="system")

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


class HostProcess:
    """A host from its start to its end.

    Args:
        folder: the host's folder.
        label: the crash point at which the host ends itself; None: none.
        passes: the number of passes of the crash point until then.
        settings: app settings in addition to the folder's.
    """

    def __init__(
        self,
        folder: Folder,
        label: str | None = None,
        passes: int = 1,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        (self._port,) = free_ports(1)
        self._ready, theirs = _processes.Pipe(duplex=False)
        paths = {
            "JOURNAL": str(folder.journal),
            "MARKS": str(folder.marks),
            "RELEASE": str(folder.release),
        }
        self._process: BaseProcess = _processes.Process(
            target=_run_host,
            args=(folder, self._port, label, passes, {**paths, **settings}, theirs),
        )
        self._process.start()
        theirs.close()

    @property
    def base_url(self) -> str:
        """The host's URL."""
        return f"http://{LOOPBACK}:{self._port}"

    async def ready(self) -> bool:
        """Wait until the host is ready. Returns False if it died before."""
        try:
            return await asyncio.to_thread(self._ready.recv_bytes) == b"ready"
        except EOFError:
            return False

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
        """Wait for the host's end; return the exit status, negative for a signal."""
        await asyncio.to_thread(self._process.join)
        code = self._process.exitcode
        assert code is not None
        return code


def _run_host(
    folder: Folder,
    port: int,
    label: str | None,
    passes: int,
    settings: dict[str, str],
    ready: Connection,
) -> None:
    log = os.open(folder.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if label is not None:
        crash_points.arm(label, passes)
    asyncio.run(_serve(folder.state, port, settings, ready))


async def _serve(state: Path, port: int, settings: dict[str, str], ready: Connection) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    # The other end closes only when the process that holds it dies.
    loop.add_reader(ready.fileno(), os._exit, 1)
    async with run_app(APP, port=port, state=state, keys=KEYS, app_settings=settings):
        ready.send_bytes(b"ready")
        await stop.wait()
