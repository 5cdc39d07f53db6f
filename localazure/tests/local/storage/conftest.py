from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from azure.storage.blob.aio import ContainerClient

from harness.small_disk import SmallDisk
from localazure.runtime.environment import Environment
from localazure.runtime.http_server import listening, runner_of
from localazure.storage.azurite_installation import PACKAGE, find_entry, find_node
from localazure.storage.service import serve

LAKE = "lake"
"""An account with a hierarchical namespace."""


class Topic:
    """A fake Event Grid for the publisher. It keeps the events that it acknowledged."""

    def __init__(self, environment: Environment) -> None:
        self._port = environment.ports.event_grid
        self._key, _ = environment.event_grid_keys("storage")
        self.events: list[dict[str, Any]] = []
        self._changed = asyncio.Condition()

    async def handle(self, request: web.Request) -> web.Response:
        assert request.headers["aeg-sas-key"] == self._key
        assert request.query["api-version"] == "2018-01-01"
        self.events += await request.json()
        async with self._changed:
            self._changed.notify_all()
        return web.Response()

    async def wait_for(self, predicate: Callable[[], bool]) -> None:
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(predicate)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncGenerator[Topic]:
        application = web.Application()
        application.router.add_post("/topics/storage/api/events", self.handle)
        async with listening(runner_of(application), {self._port: None}):
            yield self


def make_environment(folder: Path) -> Environment:
    environment = Environment.draw(folder / "state", app=folder, config=folder)
    environment.save()
    lake = {"name": LAKE, "isHnsEnabled": True, "containers": ["landing"]}
    environment.storage_config.write_text(
        json.dumps({"containers": ["landing"], "accounts": [lake]})
    )
    return environment


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return make_environment(tmp_path)


@pytest.fixture
async def topic(environment: Environment) -> AsyncIterator[Topic]:
    async with Topic(environment).listening() as topic:
        yield topic


# Azurite takes a second or two to start: tests that do not kill it share one.
@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def storage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Environment]:
    """The part, running in this process."""
    environment = make_environment(tmp_path_factory.mktemp("storage"))
    async with serve(environment):
        yield environment


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_topic(storage: Environment) -> AsyncIterator[Topic]:
    async with Topic(storage).listening() as topic:
        yield topic


@pytest_asyncio.fixture(loop_scope="session")
async def container(storage: Environment) -> AsyncIterator[ContainerClient]:
    """An empty container of the shared part."""
    connection, name = storage.storage_connection_string(), f"c{uuid.uuid4().hex}"
    async with ContainerClient.from_connection_string(connection, name) as container:
        await container.create_container()
        yield container


class Events:
    """The events of one container."""

    def __init__(self, topic: Topic, container: str) -> None:
        self._topic = topic
        self._prefix = f"/blobServices/default/containers/{container}/"

    @property
    def all(self) -> list[dict[str, Any]]:
        events = self._topic.events
        return [event for event in events if event["subject"].startswith(self._prefix)]

    async def wait_for(self, count: int) -> list[dict[str, Any]]:
        await self._topic.wait_for(lambda: len(self.all) >= count)
        return self.all


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def events_of(shared_topic: Topic) -> Callable[[str], Events]:
    return partial(Events, shared_topic)


@pytest_asyncio.fixture(loop_scope="session")
async def events(events_of: Callable[[str], Events], container: ContainerClient) -> Events:
    return events_of(container.container_name)


@pytest.fixture
def run_with_lokijs(tmp_path: Path) -> Callable[..., Any]:
    """Runs a program with LokiJS after a preloaded file, and returns the JSON that it prints.

    The program gets the paths of `database.json`, in the test's folder, and of the preloaded file.
    """

    def run(text: str, preloaded: str, *, disk_bytes: int | None = None) -> Any:
        modules = next(each for each in Path(find_entry()).parents if each.name == "node_modules")
        (tmp_path / "node_modules").symlink_to(modules)
        program = tmp_path / "program.js"
        program.write_text(text)
        folder = tmp_path / "database"
        folder.mkdir()
        arguments = ("--require", PACKAGE / preloaded, program, folder / "database.json")
        command = [find_node(), *arguments, PACKAGE / preloaded]
        with SmallDisk(folder, disk_bytes) if disk_bytes else contextlib.nullcontext() as disk:
            command = command if disk is None else disk.command(command)
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        return json.loads(done.stdout)

    return run
