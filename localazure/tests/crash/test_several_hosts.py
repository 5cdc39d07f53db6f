"""Two host processes on one task hub: one is killed, one is stopped beyond its leases."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from crash import invariants
from crash.client import Client, status_of
from crash.host import Folder, HostProcess
from localazure.functions.durable.store.store import Store
from localazure.runtime.environment import HOSTS, LEASE_SECONDS

LEASE: Final = 1.0
DEADLINE_SECONDS: Final = 120.0


@dataclass
class Hub:
    """Two hosts, each with a client and a journal of its own."""

    folder: Folder
    hosts: Sequence[HostProcess]
    clients: Sequence[Client]

    def journal(self, number: int) -> Path:
        return journal(self.folder, number)

    def began(self, number: int) -> int:
        return self.journal(number).read_text().count("began ")

    def owners(self) -> list[str]:
        """The owner of each partition."""
        with contextlib.closing(sqlite3.connect(self.folder.database)) as connection:
            rows = connection.execute("SELECT owner FROM leases ORDER BY partition")
            return [owner for (owner,) in rows]

    async def stop(self, number: int) -> None:
        """SIGSTOP a host, but not within a transaction: SQLite's lock would be held by it."""
        host = self.hosts[number]
        while True:
            host.send(signal.SIGSTOP)
            await self.until(lambda: host.is_stopped)
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

    async def until_one_owns_all(self) -> None:
        await self.until(lambda: len(set(self.owners())) == 1)

    async def until_shared(self) -> None:
        """Until each host has two partitions."""
        await self.until(lambda: sorted(Counter(self.owners()).values()) == [2, 2])

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.02)

    async def until_started(self, count: int) -> None:
        await self.until(lambda: min(len(one.started) for one in self.clients) >= count)

    def use(self) -> list[asyncio.Task[None]]:
        """Put each client to work on its host."""
        return [
            asyncio.create_task(client.use(host.base_url))
            for client, host in zip(self.clients, self.hosts, strict=True)
        ]

    async def end_and_check(self) -> None:
        """End the hosts; every instance has its one right result, and nothing is left."""
        # Signals to entities are awaited by no instance.
        await self.until(lambda: not any(under_way(self.folder).values()))
        for host in self.hosts:
            host.end()
        for host in self.hosts:
            await host.wait()
        with contextlib.closing(Store(self.folder.database)) as store:
            found = invariants.inspect(store)
            shared = int(store.entity_state("@counter@all") or 0)
            signals = int(store.entity_state("@counter@client") or 0)
        started = [one for client in self.clients for one in client.started]
        expected = {one.instance_id: (one.scenario.status, one.scenario.output) for one in started}
        assert found.faults + invariants.wrong_results(found.instances, expected) == []
        assert found.is_idle
        assert shared == sum(one.scenario.shared_additions for one in started)
        least = sum(client.signals_answered for client in self.clients)
        assert least <= signals <= sum(client.signals_sent for client in self.clients)


def under_way(folder: Folder) -> dict[str, list[tuple[object, ...]]]:
    """The instances that have not ended yet."""
    queries = {
        "instances": "SELECT instance_id, status, started FROM instances"
        " WHERE status NOT IN ('Completed', 'Failed', 'Terminated')",
        "inbox": "SELECT sequence, target FROM inbox",
        "activities": "SELECT instance_id, event_id, not_before_us FROM activities",
        "timers": "SELECT instance_id, event_id, fire_at FROM timers",
    }
    with contextlib.closing(sqlite3.connect(folder.database)) as connection:
        return {name: connection.execute(query).fetchall() for name, query in queries.items()}


def journal(folder: Folder, number: int) -> Path:
    return folder.path / f"journal-{number}"


@contextlib.asynccontextmanager
async def two_hosts(path: Path) -> AsyncGenerator[Hub]:
    """Two hosts on a new task hub, each with its share of the partitions."""
    folder = Folder(path / "hub")
    folder.make()
    hosts: list[HostProcess] = []
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            for number in range(2):
                journal(folder, number).touch()
                settings = {
                    HOSTS: "2",
                    LEASE_SECONDS: str(LEASE),
                    "JOURNAL": str(journal(folder, number)),
                }
                hosts.append(HostProcess(folder, settings=settings))
            for host in hosts:
                assert await host.ready(), folder.log.read_text()
            hub = Hub(folder, hosts, [Client("a"), Client("b")])
            await hub.until_shared()
            yield hub
    except TimeoutError:
        raise AssertionError(f"not in time: {under_way(folder)}") from None
    finally:
        for host in hosts:
            host.kill()
            await host.wait()


async def test_a_killed_host_loses_nothing(tmp_path: Path) -> None:
    async with two_hosts(tmp_path) as hub:
        await _kill_one_under_load(hub)


async def test_a_host_stopped_beyond_its_leases_is_fenced(tmp_path: Path) -> None:
    async with two_hosts(tmp_path) as hub:
        await _stop_one_under_load(hub)


async def _kill_one_under_load(hub: Hub) -> None:
    uses = hub.use()
    await hub.until_started(24)
    await hub.until(lambda: min(hub.began(0), hub.began(1)) >= 10)  # activities are spread
    hub.hosts[0].kill()
    await uses[0]  # it got no answer
    # The work of both ends on the host that is left, that under way on the killed one included.
    hub.clients[1].is_enough = True
    await uses[1]
    await asyncio.gather(*(client.finish(hub.hosts[1].base_url) for client in hub.clients))
    assert len(set(hub.owners())) == 1
    await hub.end_and_check()


async def _stop_one_under_load(hub: Hub) -> None:
    uses = hub.use()
    await hub.until_started(24)
    await hub.stop(0)
    await hub.until_one_owns_all()
    stalled = hub.began(0)
    # The other one works. Its client may start nothing new: enough may wait for the stopped one's.
    async with aiohttp.ClientSession(hub.hosts[1].base_url) as http:
        assert await status_of(http, "POST", "orchestrators/chain/meanwhile") == 202
        while await status_of(http, "GET", "instances/meanwhile") != 200:  # 202: it still runs
            await asyncio.sleep(0.02)
    hub.hosts[0].send(signal.SIGCONT)
    await hub.until_shared()
    await hub.until(lambda: hub.began(0) > stalled)  # it works again
    for client in hub.clients:
        client.is_enough = True
    await asyncio.gather(*uses)
    await asyncio.gather(
        *(client.finish(host.base_url) for client, host in zip(hub.clients, hub.hosts, strict=True))
    )
    await hub.end_and_check()
