"""Two hosts and the engine that they share: some are killed, one is stopped for a while."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from crash.campaign import is_under_way
from crash.client import Client, final_faults, status_of
from crash.host import EngineProcess, Folder, HostProcess
from crash.test_crash import check_campaign
from localazure.functions.durable.store.store import Store
from localazure.processes.ports import unix_socket
from localazure.runtime.environment import ENGINE

DEADLINE_SECONDS: Final = 120.0


class Hub:
    """An engine with a new task hub, and two hosts, each with its own client and journal."""

    def __init__(self, path: Path, address: Path) -> None:
        self.folder = Folder(path)
        self.journals = [path / "journal-0", path / "journal-1"]
        self.clients = [Client("a"), Client("b")]
        self.engine = EngineProcess(self.folder, address)
        self.hosts: list[HostProcess] = []
        for journal in self.journals:
            journal.touch()
            settings = {ENGINE: str(address), "JOURNAL": str(journal)}
            self.hosts.append(HostProcess(self.folder, settings=settings))

    @property
    def processes(self) -> list[HostProcess | EngineProcess]:
        return [*self.hosts, self.engine]

    def began(self, number: int) -> int:
        return self.journals[number].read_text().count("began ")

    async def use(self) -> list[asyncio.Task[None]]:
        """Let each client use its host; wait until both have started all kinds of instances."""
        uses = [
            asyncio.create_task(client.use(host.base_url))
            for client, host in zip(self.clients, self.hosts, strict=True)
        ]
        await until(lambda: min(len(one.started) for one in self.clients) >= 24)
        return uses

    async def finish_and_check(self) -> None:
        """Let the hosts finish the clients' work; check all results, and that nothing is left."""
        await asyncio.gather(
            *(
                client.finish(host.base_url)
                for client, host in zip(self.clients, self.hosts, strict=True)
            )
        )
        # No instance waits for signals to entities.
        await until(lambda: not is_under_way(self.folder.database))
        for process in self.processes:
            process.end()
            assert await process.wait() == 0
        with contextlib.closing(Store(self.folder.database)) as store:
            assert final_faults(store, self.clients) == []


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.02)


@pytest.fixture
def address() -> Generator[Path]:
    with unix_socket() as drawn:
        yield drawn


@pytest.fixture
async def hub(tmp_path: Path, address: Path) -> AsyncGenerator[Hub]:
    hub = Hub(tmp_path / "hub", address)
    try:
        yield hub
    finally:
        for process in hub.processes:
            process.kill()
            await process.wait()


def test_kills_of_hosts_and_engine_lose_nothing() -> None:
    check_campaign("--kills", "12", "--hosts", "2")


async def test_a_stopped_host_blocks_nobody_and_works_again_later(hub: Hub) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        for process in hub.processes:
            assert await process.ready(), hub.folder.log.read_text()
        uses = await hub.use()
        stopped, other = hub.hosts
        stopped.send(signal.SIGSTOP)
        await until(lambda: stopped.is_stopped)
        stalled = hub.began(0)
        async with aiohttp.ClientSession(other.base_url) as http:
            # The engine gives the other host what the stopped one had.
            for name in ("one", "two", "three"):
                assert await status_of(http, "POST", f"orchestrators/chain/{name}") == 202
            for name in ("one", "two", "three"):
                while await status_of(http, "GET", f"instances/{name}") != 200:  # 202: it runs
                    await asyncio.sleep(0.02)
        stopped.send(signal.SIGCONT)
        await until(lambda: hub.began(0) > stalled)
        for client in hub.clients:
            client.is_enough = True
        await asyncio.gather(*uses)
        await hub.finish_and_check()
