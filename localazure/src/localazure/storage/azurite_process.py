"""Runs Azurite as a child process: starts it, restarts it after a crash, ends it.

Azurite (https://github.com/Azure/Azurite) is Microsoft's storage emulator, an npm package. Node.js
runs its JavaScript directly. Files of `azurite/` are preloaded: with `durable_metadata.js`, writes
that Azurite acknowledged survive kill -9; with `few_removals.js` and `ordered_names.js`, a deletion
and a page of a listing cost the same in a large account as in a small one; with
`unused_packages.js`, it starts in a third of the time; with `hierarchical_paths.js`, a directory is
renamed or deleted as one change; with `web_pages.js`, web pages call only what CORS rules allow;
with `small_contents.js`, `parsed_templates.js` and `late_optimization.js`, requests need less
processor time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import subprocess
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path

import psutil

from localazure.errors import StartError
from localazure.processes.background import doing
from localazure.processes.lifetime import die_with_parent, end
from localazure.runtime.environment import LOOPBACK, Environment
from localazure.storage.azurite_installation import PACKAGE, find_entry, find_node

logger = logging.getLogger(__name__)

# The order matters: the last five load Azurite's modules, after the unused packages are excluded.
PRELOADED = (
    "late_optimization.js",
    "durable_metadata.js",
    "few_removals.js",
    "parsed_templates.js",
    "unused_packages.js",
    "ordered_names.js",
    "blob_events.js",
    "hierarchical_paths.js",
    "small_contents.js",
    "web_pages.js",
)

START_TIMEOUT_SECONDS = 120.0
STOP_TIMEOUT_SECONDS = 10.0
PORT_POLL_SECONDS = 0.05
RESTART_DELAY_SECONDS = 0.2
# Longer than the proxy's timeout, so that the proxy never uses a connection that Azurite closes.
KEEP_ALIVE_SECONDS = 600
LOG_TAIL_CHARACTERS = 2000


class AzuriteFailed(StartError):
    """Azurite ended before it listened. The message has the last lines of its log."""


class AzuriteProcess:
    """An Azurite process with its data folder.

    Args:
        environment: ports, keys and the state folder.
        accounts: names of all storage accounts.

    Attributes:
        ready: set while all three of its services accept connections.
    """

    def __init__(self, environment: Environment, accounts: Iterable[str]) -> None:
        folder = environment.part_folder("storage")
        self.ready = asyncio.Event()
        self._location = folder / "azurite"
        self._pid_file = folder / "azurite.pid"
        self._log_file = folder / "azurite.log"
        ports = environment.ports
        self._ports = (ports.azurite_blob, ports.azurite_queue, ports.azurite_table)
        # https://learn.microsoft.com/azure/storage/common/storage-connect-azurite
        self._accounts = ";".join(f"{name}:{environment.storage_key(name)}" for name in accounts)
        self._process: asyncio.subprocess.Process | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Keep Azurite running until the context ends. Then save its data and end it.

        Raises:
            AzuriteNotInstalled: Node.js or the npm package is missing.
            AzuriteFailed: Azurite ended at once.
        """
        end_leftover(self._pid_file, self._location)
        try:
            await self._start()
            async with doing("running Azurite", self._run_on):
                yield
        finally:
            await self._stop()

    async def _run_on(self) -> None:
        """Start Azurite whenever it does not run. Raises the errors of a start."""
        while True:
            if not self.ready.is_set():
                await self._stop()  # it may run, and not listen
                await self._start()
            assert self._process is not None  # since it is ready
            code = await self._process.wait()
            self.ready.clear()
            logger.warning("Azurite ended with exit code %s; starting it again", code)
            await asyncio.sleep(RESTART_DELAY_SECONDS)

    async def _start(self) -> None:
        self._location.mkdir(parents=True, exist_ok=True)
        blob, queue, table = (str(port) for port in self._ports)
        with self._log_file.open("wb") as output:
            self._process = await asyncio.create_subprocess_exec(
                find_node(),
                *(part for name in PRELOADED for part in ("--require", PACKAGE / name)),
                find_entry(),
                *("--location", self._location),
                *("--blobHost", LOOPBACK, "--blobPort", blob),
                *("--queueHost", LOOPBACK, "--queuePort", queue),
                *("--tableHost", LOOPBACK, "--tablePort", table),
                *("--blobKeepAliveTimeout", str(KEEP_ALIVE_SECONDS)),
                "--skipApiVersionCheck",
                "--disableTelemetry",
                "--silent",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent(),
                env={**os.environ, "AZURITE_ACCOUNTS": self._accounts},
            )
        self._write_pid(self._process.pid)
        await self._wait_until_it_listens(self._process)
        self.ready.set()

    def _write_pid(self, pid: int) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            created_seconds = psutil.Process(pid).create_time()
            self._pid_file.write_text(json.dumps({"pid": pid, "created_seconds": created_seconds}))

    async def _wait_until_it_listens(self, process: asyncio.subprocess.Process) -> None:
        deadline_seconds = asyncio.get_running_loop().time() + START_TIMEOUT_SECONDS
        for port in self._ports:
            while not await _accepts(port):
                if process.returncode is not None:
                    raise AzuriteFailed(
                        f"Azurite ended with exit code {process.returncode} before it listened on "
                        f"{LOOPBACK}:{port}: {self._log_tail()}"
                    )
                if asyncio.get_running_loop().time() > deadline_seconds:
                    raise AzuriteFailed(
                        f"Azurite did not listen on {LOOPBACK}:{port} within "
                        f"{START_TIMEOUT_SECONDS} s: {self._log_tail()}"
                    )
                await asyncio.sleep(PORT_POLL_SECONDS)

    def _log_tail(self) -> str:
        return self._log_file.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:].strip()

    async def _stop(self) -> None:
        """Send SIGTERM, so that Azurite saves its metadata, and SIGKILL if that takes too long."""
        process, self._process = self._process, None
        self.ready.clear()
        if process is not None and not await end(process, within_seconds=STOP_TIMEOUT_SECONDS):
            logger.warning("Azurite did not end within %s s of SIGTERM", STOP_TIMEOUT_SECONDS)
        self._pid_file.unlink(missing_ok=True)


async def _accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


def end_leftover(pid_file: Path, location: Path) -> None:
    """End an Azurite that still uses this folder because its parent was killed with SIGKILL.

    On Linux it ends with its parent (`die_with_parent`). Pids are reused, so the process creation
    time and the command line must match too.
    """
    try:
        noted = json.loads(pid_file.read_text())
        process = psutil.Process(noted["pid"])
        same = abs(process.create_time() - noted["created_seconds"]) < 1
        if not same or str(location) not in process.cmdline():
            return
    except (FileNotFoundError, ValueError, KeyError, psutil.Error):
        return
    logger.info("ending Azurite (pid %s) of an earlier run on %s", process.pid, location)
    with contextlib.suppress(psutil.NoSuchProcess):
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_SECONDS)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(STOP_TIMEOUT_SECONDS)
