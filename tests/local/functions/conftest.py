from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from localazure.environment import Environment, Keys, Ports
from localazure.functions.authorization import KeyRing
from localazure.functions.host import Host, run_app

APPS = Path(__file__).parent / "apps"
KEYS = KeyRing(master="master-key", host="host-key", system="system-key")
DEADLINE_SECONDS = 30.0

RunningApp = Callable[..., AbstractAsyncContextManager[tuple[Host, aiohttp.ClientSession]]]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def running_app(tmp_path: Path) -> RunningApp:
    """Runs one of the apps in this process, with a client whose base URL is the host's."""

    @contextlib.asynccontextmanager
    async def run(
        name: str, *, port: int | None = None, **settings: str
    ) -> AsyncGenerator[tuple[Host, aiohttp.ClientSession]]:
        async with (
            run_app(
                APPS / name,
                port=port or free_port(),
                state=tmp_path / "state",
                keys=KEYS,
                app_settings={"SEEN": str(tmp_path / "seen.jsonl"), **settings},
            ) as host,
            aiohttp.ClientSession(host.base_url) as client,
        ):
            yield host, client

    return run


class Seen:
    """What the app's functions noted."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text().splitlines()]

    def of(self, function: str) -> list[dict[str, Any]]:
        return [note for note in self.all() if note["function"] == function]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until it holds."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not condition():
                await asyncio.sleep(0.02)


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    return Seen(tmp_path / "seen.jsonl")


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """A whole environment on free ports; its app is yet to be set."""
    sockets = [socket.socket() for _ in Ports.OFFSETS]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return Environment(
        state=tmp_path / "localazure",
        app=tmp_path,
        ports=Ports(**dict(zip(Ports.OFFSETS, ports, strict=True))),
        keys=Keys.draw(),
        service_bus_config=tmp_path / "Config.json",
        event_grid_config=tmp_path / "event-grid.json",
        azure_ml_config=tmp_path / "azure-ml.json",
        storage_config=tmp_path / "storage.json",
        app_settings={"SEEN": str(tmp_path / "seen.jsonl")},
    )
