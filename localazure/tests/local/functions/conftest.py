from __future__ import annotations

import contextlib
import functools
import json
import textwrap
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from localazure.functions.host import Host
from localazure.functions.http.authorization import KeyRing
from localazure.functions.http.cors import CorsPolicy
from localazure.functions.service import DRAIN_SECONDS, run_app
from localazure.processes.ports import free_ports
from localazure.runtime.environment import Environment

APPS = Path(__file__).parent / "apps"
KEYS = KeyRing(master="master-key", host="host-key", system="system-key")

HEADER = "import azure.functions as func\napp = func.FunctionApp()\n"

RunText = Callable[..., AbstractAsyncContextManager[Any]]
RunningApp = Callable[..., AbstractAsyncContextManager[tuple[Host, aiohttp.ClientSession]]]


@contextlib.asynccontextmanager
async def run_in(
    folder: Path,
    app: str | Path,
    *,
    port: int | None = None,
    drain_seconds: float = DRAIN_SECONDS,
    cors: CorsPolicy | None = None,
    only: Sequence[str] = (),
    **settings: str,
) -> AsyncGenerator[tuple[Host, aiohttp.ClientSession]]:
    async with (
        run_app(
            APPS / app,  # an absolute path replaces APPS
            port=port or free_ports(1)[0],
            state=folder / "state",
            keys=KEYS,
            app_settings={"SEEN": str(folder / "seen.jsonl"), **settings},
            drain_seconds=drain_seconds,
            cors=cors,
            only=only,
        ) as host,
        aiohttp.ClientSession(host.base_url) as client,
    ):
        yield host, client


@pytest.fixture
def running_app(tmp_path: Path) -> RunningApp:
    """Runs an app in this process, by its name or path; yields the host and a client."""
    return functools.partial(run_in, tmp_path)


@pytest.fixture
def run_text(tmp_path: Path) -> RunText:
    """Runs an app, given the body of its script; see `running_app`."""

    def run(body: str, **settings: Any) -> AbstractAsyncContextManager[Any]:
        folder = tmp_path / "app"
        folder.mkdir(exist_ok=True)
        (folder / "host.json").write_text('{"version": "2.0"}')
        (folder / "function_app.py").write_text(HEADER + textwrap.dedent(body))
        return run_in(tmp_path, folder, **settings)

    return run


@dataclass
class Shared:
    environment: Environment
    seen: Seen
    running_app: RunningApp


@pytest.fixture
def free_port() -> int:
    return free_ports(1)[0]


class Seen:
    """The notes that the app's functions wrote."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text().splitlines()]

    def of(self, function: str, **fields: object) -> list[dict[str, Any]]:
        wanted = {"function": function, **fields}
        return [note for note in self.all() if wanted.items() <= note.items()]


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    return Seen(tmp_path / "seen.jsonl")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """A host that the tests of a module share, because a start for each test takes too long."""
    folder = tmp_path_factory.mktemp("shared")
    return Shared(
        make_environment(folder), Seen(folder / "seen.jsonl"), functools.partial(run_in, folder)
    )


def make_environment(folder: Path) -> Environment:
    """An environment on free ports, with a folder in place of its app."""
    drawn = Environment.draw(folder / "localazure", app=folder, config=folder)
    return replace(drawn, app_settings={"SEEN": str(folder / "seen.jsonl")})


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return make_environment(tmp_path)
