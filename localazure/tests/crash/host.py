"""One life of the Functions host, in a process of its own that may die at any moment.

The process is forked from a server that has everything imported, so that a life begins in
milliseconds; what runs in it is the whole host, from its HTTP server to SQLite.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import random
import signal
import socket
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from localazure.functions.host import run_app
from localazure.functions.http.access_keys import KeyRing
from localazure.runtime.environment import LOOPBACK
from localazure.sqlite import crash_points

APP: Final = Path(__file__).parent / "app"
KEYS: Final = KeyRing(master="master", host="host", system="system")

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([__name__, "localazure.functions.triggers.durable.functions"])


@dataclass(frozen=True)
class Folder:
    """Where the host keeps its state, and the functions their notes."""

    path: Path

    @property
    def state(self) -> Path:
        """The host's state folder."""
        return self.path / "state"

    @property
    def database(self) -> Path:
        """The engine's store."""
        return self.state / "durable.db"

    @property
    def journal(self) -> Path:
        """What the activities noted."""
        return self.path / "journal"

    @property
    def release(self) -> Path:
        """Lets the activity `held` return, once it is there."""
        return self.path / "release"

    @property
    def log(self) -> Path:
        """The output of all lives."""
        return self.path / "host.log"

    def make(self) -> None:
        """Make what the functions expect to be there."""
        (self.path / "marks").mkdir(parents=True)
        self.journal.touch()

    def settings(self) -> dict[str, str]:
        """App settings: where the functions find all this."""
        return {
            "JOURNAL": str(self.journal),
            "MARKS": str(self.path / "marks"),
            "RELEASE": str(self.release),
        }


class Life:
    """A host from its birth to its death.

    Args:
        folder: its own alone.
        label: crash point at which it dies by itself, None: it does not.
        passes: the how-manieth pass of the point kills it.
    """

    def __init__(self, folder: Folder, label: str | None = None, passes: int = 1) -> None:
        self._port = _free_port()
        self._ready, theirs = _processes.Pipe(duplex=False)
        self._process: BaseProcess = _processes.Process(
            target=_live, args=(folder, self._port, label, passes, theirs)
        )
        self._process.start()
        theirs.close()

    @property
    def base_url(self) -> str:
        """Where it answers."""
        return f"http://{LOOPBACK}:{self._port}"

    async def ready(self) -> bool:
        """Wait until it answers; False: it died before."""
        await _readable(self._ready.fileno())
        try:
            return self._ready.recv_bytes() == b"ready"
        except EOFError:
            return False

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def end(self) -> None:
        """SIGTERM: it drains."""
        self._process.terminate()

    async def wait(self) -> int:
        """Wait for its death; the exit status, negative: the signal."""
        await _readable(self._process.sentinel)
        self._process.join()
        code = self._process.exitcode
        assert code is not None
        return code


def _free_port() -> int:
    """A port that nobody listens on, from below those that the kernel gives to clients."""
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    is_readable = asyncio.Event()
    loop.add_reader(descriptor, is_readable.set)
    try:
        await is_readable.wait()
    finally:
        loop.remove_reader(descriptor)


def _live(folder: Folder, port: int, label: str | None, passes: int, ready: Connection) -> None:
    log = os.open(folder.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if label is not None:
        crash_points.arm(label, passes)
    asyncio.run(_serve(folder, port, ready))


async def _serve(folder: Folder, port: int, ready: Connection) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    # The other end is closed by nothing but the death of the process that holds it.
    loop.add_reader(ready.fileno(), os._exit, 1)
    async with run_app(
        APP, port=port, state=folder.state, keys=KEYS, app_settings=folder.settings()
    ):
        ready.send_bytes(b"ready")
        await stop.wait()
