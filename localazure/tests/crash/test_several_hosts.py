"""Two host processes on one task hub: one is killed, or stopped until its leases expire."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from crash.client import Client, final_faults, status_of
from crash.host import Folder, HostProcess
from localazure.functions.durable.store.store import Store
from localazure.runtime.environment import HOSTS, LEASE_SECONDS

LEASE: Final = 1.0
DEADLINE_SECONDS: Final = 120.0


class Hub:
    """Two hosts on a new task hub, each with its own client and journal."""

    def __init__(self, path: Path) -> None:
        self.folder = Folder(path)
        self.journals = [path / "journal-0", path / "journal-1"]
        self.clients = [Client("a"), Client("b")]
        self.hosts: list[HostProcess] = []
        for journal in self.journals:
            journal.touch()
            settings = {HOSTS: "2", LEASE_SECONDS: str(LEASE), "JOURNAL": str(journal)}
            self.hosts.append(HostProcess(self.folder, settings=settings))

    def began(self, number: int) -> int:
        return self.journals[number].read_text().count("began ")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self.folder.database)) as connection:
            return connection.execute(query).fetchall()

    def owners(self) -> Counter[str]:
        """The number of partitions that each host owns."""
        return Counter(owner for (owner,) in self.rows("SELECT owner FROM leases"))

    def under_way(self) -> list[list[tuple[Any, ...]]]:
        """All rows of instances, messages, activities and timers that have not ended."""
        live = "status NOT IN ('Completed', 'Failed', 'Terminated')"
        return [
            self.rows(f"SELECT instance_id, status, started FROM instances WHERE {live}"),  # noqa: S608 - of two constants
            self.rows("SELECT sequence, target FROM inbox"),
            self.rows("SELECT instance_id, event_id, not_before_us FROM activities"),
            self.rows("SELECT instance_id, event_id, fire_at FROM timers"),
        ]

    async def stop(self, number: int) -> None:
        """Send SIGSTOP to a host outside transactions, in which it would hold SQLite's lock."""
        host = self.hosts[number]
        while True:
            host.send(signal.SIGSTOP)
            await until(lambda: host.is_stopped)
            with contextlib.closing(
                sqlite3.connect(self.folder.database, isolation_level=None, timeout=1)
            ) as connection:
                try:
                    connection.execute("BEGIN IMMEDIATE")
                except sqlite3.OperationalError:
                    host.send(signal.SIGCONT)
                    await asyncio.sleep(0.01)
                else:
                    return

    async def until_shared(self) -> None:
        """Wait until each host has two partitions."""
        await until(lambda: sorted(self.owners().values()) == [2, 2])

    async def use(self) -> list[asyncio.Task[None]]:
        """Let each client use its host; wait until both have started all kinds of instances."""
        uses = [
            asyncio.create_task(client.use(host.base_url))
            for client, host in zip(self.clients, self.hosts, strict=True)
        ]
        await until(lambda: min(len(one.started) for one in self.clients) >= 24)
        return uses

    async def finish_and_check(self, hosts: Sequence[HostProcess]) -> None:
        """Let hosts finish the clients' work; check all results, and that nothing is left."""
        await asyncio.gather(
            *(
                client.finish(host.base_url)
                for client, host in zip(self.clients, hosts, strict=True)
            )
        )
        # No instance waits for signals to entities.
        await until(lambda: not any(self.under_way()))
        for host in self.hosts:
            host.end()
        for host in self.hosts:
            await host.wait()
        with contextlib.closing(Store(self.folder.database)) as store:
            assert final_faults(store, self.clients) == []


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.02)


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncGenerator[Hub]:
    hub = Hub(tmp_path / "hub")
    try:
        yield hub
    finally:
        for host in hub.hosts:
            host.kill()
            await host.wait()


@contextlib.asynccontextmanager
async def in_time(hub: Hub) -> AsyncGenerator[None]:
    """Wait for both hosts and their partitions; after the deadline, show the unfinished work."""
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            for host in hub.hosts:
                assert await host.ready(), hub.folder.log.read_text()
            await hub.until_shared()
            yield
    except TimeoutError:
        raise AssertionError(f"not in time: {hub.under_way()}") from None


async def test_a_host_stopped_beyond_its_leases_is_fenced(hub: Hub) -> None:
    async with in_time(hub):
        uses = await hub.use()
        await hub.stop(0)
        await until(lambda: len(hub.owners()) == 1)
        stalled = hub.began(0)
        # The other host works. Its client may start nothing, if enough instances wait for the
        # stopped host.
        async with aiohttp.ClientSession(hub.hosts[1].base_url) as http:
            assert await status_of(http, "POST", "orchestrators/chain/meanwhile") == 202
            while await status_of(http, "GET", "instances/meanwhile") != 200:  # 202: still running
                await asyncio.sleep(0.02)
        hub.hosts[0].send(signal.SIGCONT)
        await hub.until_shared()
        await until(lambda: hub.began(0) > stalled)  # the host works again
        for client in hub.clients:
            client.is_enough = True
        await asyncio.gather(*uses)
        await hub.finish_and_check(hub.hosts)
