"""A round: one state folder, a sequence of hosts that are killed, and a last host."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import aiohttp

from crash import invariants
from crash.client import POLL_SECONDS, Client, Refused, final_faults
from crash.host import EngineProcess, Folder, HostProcess, KilledProcess
from crash.invariants import Snapshot
from localazure.functions.durable.store.store import Store
from localazure.processes.ports import unix_socket
from localazure.runtime.environment import ENGINE
from localazure.sqlite.crash_points import COMMIT_POINTS
from localazure.sqlite.database import DatabaseUnusable

Process = TypeVar("Process", bound=KilledProcess)
Start = Callable[[tuple[str, int] | None], Process]

# Crash points in the functions of `app/function_app.py`, in addition to the store's.
APP_POINTS: Final = ("activity:began", "activity:returned", "orchestrator", "entity")
RANDOM: Final = "at any time"
DRAINING: Final = "in a drain"
ANY_TIME: Final = (RANDOM, RANDOM, DRAINING)
HOST_KINDS: Final = (*APP_POINTS, *ANY_TIME)

DEADLINE_SECONDS: Final = 60.0
# Half of the kills come soon after the start, while a host recovers its predecessor's state.
_SOON_PASSES: Final = 4
_LATE_PASSES: Final = 40
_RANDOM_SECONDS: Final = 0.4
_DRAIN_SECONDS: Final = 0.03
# SQLite's write-ahead log: https://www.sqlite.org/fileformat2.html#the_write_ahead_log
_LOG_HEADER_BYTES: Final = 32
_FRAME_BYTES: Final = 24 + 4096
# A checkpoint writes the log back after this number of frames (PRAGMA wal_autocheckpoint).
_WRITTEN_BACK_FRAMES: Final = 1000


@dataclass(frozen=True)
class Kill:
    """How a host is killed: at the n-th pass of a crash point, or after a number of seconds."""

    kind: str
    passes: int = 0
    seconds: float = 0.0
    """Seconds after the start of the process, or after SIGTERM for a kill in the drain."""


def draw_kills(
    chance: random.Random, count: int, kinds: Sequence[str] = (*COMMIT_POINTS, *HOST_KINDS)
) -> list[Kill]:
    """Draw equal numbers of all kinds of kills, in random order."""
    drawn = [kinds[number % len(kinds)] for number in range(count)]
    chance.shuffle(drawn)
    return [_draw(chance, kind) for kind in drawn]


def _draw(chance: random.Random, kind: str) -> Kill:
    if kind == RANDOM:
        return Kill(kind, seconds=chance.uniform(0, _RANDOM_SECONDS))
    if kind == DRAINING:
        return Kill(kind, seconds=chance.uniform(0, _DRAIN_SECONDS))
    most = chance.choice((_SOON_PASSES, _LATE_PASSES))
    return Kill(kind, passes=chance.randint(1, most))


@dataclass
class Tally:
    """The result of all rounds."""

    kills: Counter[str] = field(default_factory=Counter[str])
    instances: int = 0
    activities: int = 0
    begun_again: int = 0
    """How often an activity began again, because its result was not recorded before the kill."""
    checks: int = 0
    power_losses: int = 0
    faults: list[str] = field(default_factory=list[str])


class Round:
    """One task hub whose hosts are killed.

    Args:
        path: a new folder.
        chance: the random numbers of the kills.
        kills: the number of kills.
        tally: counts kills and findings.
        on_kill: called after each kill.
    """

    def __init__(
        self,
        path: Path,
        chance: random.Random,
        kills: int,
        tally: Tally,
        on_kill: Callable[[], None],
    ) -> None:
        self._tally = tally
        self._folder = Folder(path)
        self._chance = chance
        self._count = kills
        self._on_kill = on_kill
        self._clients = [Client()]
        self._ended: set[str] = set()
        self._journal_read = 0
        self._closed_log = b""
        self._now = ""
        """The name of the current kill in faults."""

    async def run(self) -> None:
        """Kill hosts and check their state; then let one finish all work and check all results."""
        kills = draw_kills(self._chance, self._count)
        last = await self._kill_all(kills, partial(HostProcess, self._folder), self._clients[0])
        await self._finish([last])

    async def _kill_all(
        self, kills: Sequence[Kill], start: Start[Process], client: Client | None
    ) -> Process:
        """Start a process for each kill, and one more, which is returned.

        Args:
            kills: how they end.
            start: starts one, with a crash point or without.
            client: uses the hosts; None: they are engines of several hosts.
        """
        for number, kill in enumerate(kills):
            if self._tally.faults:
                break
            self._now = f"kill {number} ({kill})"
            try:
                await self._die(kill, start, client)
            except TimeoutError:
                self._fault(f"it was not reached within {DEADLINE_SECONDS:.0f} s")
                break
            self._tally.kills[kill.kind] += 1
            if self._is_unowned(client):
                self._check(is_drained=kill.kind == DRAINING)
            self._on_kill()
        self._now = "the end"
        return start(None)

    def _is_unowned(self, client: Client | None) -> bool:
        """Whether no process writes the store after the end of one with this client."""
        return client is not None

    async def _die(self, kill: Kill, start: Start[Process], client: Client | None) -> None:
        """Start a process and kill it; repeat if it ended before the kill."""
        while True:
            process = start((kill.kind, kill.passes) if kill.passes else None)
            using = asyncio.create_task(self._use(process, client))
            try:
                async with asyncio.timeout(DEADLINE_SECONDS):
                    if kill.kind == RANDOM:
                        await asyncio.sleep(kill.seconds)
                        process.kill()
                    elif kill.kind == DRAINING:
                        await asyncio.sleep(self._chance.uniform(0.1, _RANDOM_SECONDS))
                        process.end()
                        await asyncio.sleep(kill.seconds)
                        process.kill()
                    code = await process.wait()
            finally:
                process.kill()
                using.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await using
            if code == -signal.SIGKILL:
                return
            if kill.kind != DRAINING or code not in (0, -signal.SIGTERM):
                self._fault(f"the process ended by itself with status {code}")
                return

    async def _use(self, process: KilledProcess, client: Client | None) -> None:
        if not await process.ready() or client is None:
            return
        assert isinstance(process, HostProcess)
        try:
            while not process.has_ended and not client.is_enough:
                await client.use(process.base_url)  # ends with each engine, too
                await asyncio.sleep(POLL_SECONDS)
        except Refused as error:
            self._fault(str(error))
            process.kill()

    def _check(self, *, is_drained: bool) -> None:
        """Check the invariants after a kill."""
        lines = self._new_lines()
        for label in invariants.begun_after_their_end(lines, self._ended):
            self._fault(f"{label} began again although its end was recorded")
        snapshot = self._snapshot()
        for fault in snapshot.faults:
            self._fault(fault)
        self._ended |= snapshot.ended
        self._tally.checks += 1
        self._check_power_loss(is_drained=is_drained)

    def _check_power_loss(self, *, is_drained: bool) -> None:
        """Check the state after a power loss: the disk has only the first commits."""
        path = self._folder.database.with_name("durable.db-wal")
        log = path.read_bytes() if path.exists() else b""
        # A log that a checkpoint writes back, when it is full or at the end, is complete on disk.
        if is_drained:
            self._closed_log = _salt(log)
        frames = _frames(log)
        if 0 < frames < _WRITTEN_BACK_FRAMES and _salt(log) != self._closed_log:
            cut = self._chance.randrange(_LOG_HEADER_BYTES + frames * _FRAME_BYTES)
            for fault in self._snapshot(cut).faults:
                self._fault(f"with the log cut at byte {cut}: {fault}")
            self._tally.power_losses += 1

    async def _finish(
        self, hosts: Sequence[HostProcess], engines: Sequence[EngineProcess] = ()
    ) -> None:
        """Let the last processes complete all work and drain, which leaves nothing pending."""
        processes = (*hosts, *engines)
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                if not all([await process.ready() for process in processes]):
                    self._fault("the last process did not start")
                finishing = zip(self._clients, hosts, strict=True)
                await asyncio.gather(*(client.finish(host.base_url) for client, host in finishing))
                while engines and is_under_way(self._folder.database):  # signals to entities
                    await asyncio.sleep(POLL_SECONDS)
                for process in processes:
                    process.end()
                    if (code := await process.wait()) != 0:
                        self._fault(f"SIGTERM ended the last process with status {code}")
        except (TimeoutError, aiohttp.ClientError) as error:
            self._fault(f"not everything came to its end: {error!r}")
            for process in processes:
                process.kill()
                await process.wait()
        self._conclude()

    def _conclude(self) -> None:
        """Check all results."""
        self._check(is_drained=False)
        with contextlib.closing(self._copy()) as store:
            for fault in final_faults(store, self._clients):
                self._fault(fault)
            self._tally.instances += len(store.query())
        if not self._ended:
            self._fault("no end of an activity was ever seen: the check is blind")
        began = Counter(
            line.removeprefix("began ")
            for line in self._folder.journal.read_text().splitlines()
            if line.startswith("began ") and "/never" not in line and "/second" not in line
        )
        self._tally.activities += len(began)
        self._tally.begun_again += began.total() - len(began)

    def _snapshot(self, cut: int | None = None) -> Snapshot:
        try:
            with contextlib.closing(self._copy(cut)) as store:
                snapshot = invariants.inspect(store)
        except (sqlite3.DatabaseError, DatabaseUnusable) as error:
            return Snapshot(faults=[f"it cannot be read: {error}"])
        with contextlib.closing(sqlite3.connect(self._copied)) as connection:
            ((verdict,),) = connection.execute("PRAGMA integrity_check")
        if verdict != "ok":
            snapshot.faults.append(f"integrity_check: {verdict}")
        return snapshot

    @property
    def _copied(self) -> Path:
        return self._folder.path / "copy" / "durable.db"

    def _copy(self, cut: int | None = None) -> Store:
        """Copy the store, because reading the original would recover it for the next host.

        Args:
            cut: the number of bytes of the write-ahead log to keep; None: all.
        """
        shutil.rmtree(self._copied.parent, ignore_errors=True)
        self._copied.parent.mkdir()
        for part in self._folder.state.glob("durable.db*"):
            if not part.name.endswith((".lock", "-shm")):
                shutil.copy(part, self._copied.parent)
        if cut is not None:
            os.truncate(f"{self._copied}-wal", cut)
        return Store(self._copied)

    def _new_lines(self) -> list[str]:
        with self._folder.journal.open() as journal:
            journal.seek(self._journal_read)
            text = journal.read()
        self._journal_read += len(text)
        return text.splitlines()

    def _fault(self, text: str) -> None:
        self._tally.faults.append(f"{self._folder.path.name}, {self._now}: {text}")


class SharedRound(Round):
    """One task hub with two hosts and the engine that they share, which are killed at once.

    A third of the kills is of each. The store is checked when the engine has died.
    """

    async def run(self) -> None:
        """Kill the three; then let them finish all work, and check all results."""
        self._clients = [Client("a"), Client("b")]
        self._kinds_left = 3
        each = self._count // 3
        of_engine = draw_kills(self._chance, self._count - 2 * each, (*COMMIT_POINTS, *ANY_TIME))
        of_hosts = [draw_kills(self._chance, each, HOST_KINDS) for _ in self._clients]
        with unix_socket() as address:
            start_host = partial(HostProcess, self._folder, settings={ENGINE: str(address)})
            start_engine = partial(EngineProcess, self._folder, address)
            async with asyncio.TaskGroup() as group:
                engine = group.create_task(self._kill_all(of_engine, start_engine, None))
                hosts = [
                    group.create_task(self._kill_all(kills, start_host, client))
                    for kills, client in zip(of_hosts, self._clients, strict=True)
                ]
            await self._finish([host.result() for host in hosts], [engine.result()])

    async def _kill_all(
        self, kills: Sequence[Kill], start: Start[Process], client: Client | None
    ) -> Process:
        """Kill processes of one kind; use the last one as long as others are killed."""
        last = await super()._kill_all(kills, start, client)
        self._kinds_left -= 1
        for each in self._clients:
            each.is_enough = not self._kinds_left
        await self._use(last, client)
        return last

    def _is_unowned(self, client: Client | None) -> bool:
        return client is None


def is_under_way(database: Path) -> bool:
    """Whether a store that a process writes has messages, activities or timers."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return any(
            connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()  # noqa: S608 - constants
            for table in ("inbox", "activities", "timers")
        )


def _salt(log: bytes) -> bytes:
    """Return the value that distinguishes a log from its predecessor."""
    return log[16:24]


def _frames(log: bytes) -> int:
    """Return the number of valid frames of a log: those with the header's salt."""
    salt = _salt(log)
    count, place = 0, _LOG_HEADER_BYTES
    while len(log) >= place + _FRAME_BYTES and log[place + 8 : place + 16] == salt:
        count, place = count + 1, place + _FRAME_BYTES
    return count
