"""Starts and ends the processes of an attempt with all their descendants.

The processes of one node share a process group, so that a signal also reaches the children of a
shell. Programs that leave the group (torchrun's workers do) are found as descendants, or by the
variable `FOLDER_VARIABLE` that every process of a job has in its environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from localazure.machinelearning.jobs.processes import FOLDER_VARIABLE, Process
from localazure.processes.lifetime import die_with_parent
from localazure.processes.state_folder import users_umask

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_SHELL_SIGNAL_OFFSET = 128
_KILL_ROUNDS = 50
_KILL_PAUSE_SECONDS = 0.02


@dataclass(frozen=True)
class RankExit:
    """How one process ended."""

    process: Process
    code: int
    """The return code of `subprocess`: negative for a signal."""

    def describe(self) -> str:
        """A message for the user: the rank, how it ended, and its log."""
        signum = -self.code if self.code < 0 else self.code - _SHELL_SIGNAL_OFFSET
        try:
            reason = f"was ended by {signal.Signals(signum).name}" if signum > 0 else ""
        except ValueError:
            reason = ""
        if not reason or self.code > 0:
            reason = f"exited with code {self.code}" + (f" ({reason})" if reason else "")
        return (
            f"rank {self.process.rank} on node {self.process.node} {reason}; "
            f"see user_logs/{self.process.log.name}"
        )


class RankGroup:
    """The running processes of one attempt. They die with the thread that calls `start`."""

    def __init__(self, working_directory: Path) -> None:
        self._working_directory = working_directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self._plan: list[Process] = []
        self._leaders: dict[int, int] = {}
        self.exits: list[asyncio.Future[RankExit]] = []
        """One future per process, done when the process has ended."""

    def start(self, plan: Sequence[Process]) -> None:
        """Start all processes.

        Raises:
            OSError: a process could not be started; end the others with `kill`.
        """
        adopt_orphans()
        for process in plan:
            leader = self._leaders.get(process.node, 0)
            with process.log.open("ab") as log:
                started = subprocess.Popen(
                    process.arguments,
                    cwd=self._working_directory,
                    env=process.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    process_group=leader,
                    umask=users_umask(),
                    preexec_fn=die_with_parent(),  # noqa: PLW1509 - it only calls prctl
                )
            self._plan.append(process)
            self._processes.append(started)
            self._leaders.setdefault(process.node, started.pid)
        # Last: when a group's leader has been waited for, the group's id may be reused.
        for process, started in zip(plan, self._processes, strict=True):
            self.exits.append(_watch(process, started))

    async def stop(self, *, grace_seconds: float) -> None:
        """Send SIGTERM to all processes, and SIGKILL to those that run after the grace period."""
        self._signal(signal.SIGTERM)
        if self.exits:
            await asyncio.wait(self.exits, timeout=grace_seconds)
        await self.kill()

    async def kill(self) -> None:
        """Send SIGKILL to all processes and descendants, and wait until they have ended."""
        self._signal(signal.SIGKILL)
        await asyncio.to_thread(kill_descendants)
        if self.exits:
            await asyncio.wait(self.exits)

    def _signal(self, signum: signal.Signals) -> None:
        # A group's id is valid only until all members of the group have been waited for.
        ended = {exit_.result().process.rank for exit_ in self.exits if exit_.done()}
        for node in {process.node for process in self._plan if process.rank not in ended}:
            leader = self._leaders[node]
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(leader, signum)


def adopt_orphans() -> None:
    """Adopt descendants whose parent ends, so that they can be found."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_descendants() -> None:
    """Send SIGKILL to every descendant of this process, until none is alive."""
    _kill_until_gone(lambda: psutil.Process().children(recursive=True))


def kill_marked(folder: Path) -> None:
    """Send SIGKILL to every process of the jobs below a folder, until none is alive.

    It ends the processes of an earlier runner that was killed.
    """
    _kill_until_gone(lambda: _marked(folder))


def _marked(folder: Path) -> list[psutil.Process]:
    marked: list[psutil.Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            mark = process.environ().get(FOLDER_VARIABLE)
            if mark is not None and Path(mark).is_relative_to(folder):
                marked.append(process)
    return marked


def _kill_until_gone(find: Callable[[], list[psutil.Process]]) -> None:
    for _ in range(_KILL_ROUNDS):
        alive: list[psutil.Process] = []
        for process in find():
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE:
                    process.kill()
                    alive.append(process)
        if not alive:
            return
        time.sleep(_KILL_PAUSE_SECONDS)
    names = ", ".join(str(process.pid) for process in find())
    raise RuntimeError(f"processes of a job survive SIGKILL: {names}")


def _watch(process: Process, started: subprocess.Popen[bytes]) -> asyncio.Future[RankExit]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[RankExit] = loop.create_future()

    def wait() -> None:
        outcome = RankExit(process, started.wait())
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is no waiter
            loop.call_soon_threadsafe(future.set_result, outcome)

    threading.Thread(target=wait, name=f"rank {process.rank}", daemon=True).start()
    return future
