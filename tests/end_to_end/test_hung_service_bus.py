"""SIGSTOP of the Service Bus part: the API goes on, and a run is cancelled meanwhile."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from demo.waiting import API_POLL_SECONDS, eventually
from harness.runtime import processes_of
from tests.replay.record import make_app, on_stage
from tests.replay.scene import Scene

pytestmark = pytest.mark.timeout(600)

SITUATION = "cancelled"
READERS = 20
# The longest limit of a request below, with room for a busy machine. The bus is stopped for longer.
LIMIT_SECONDS = 60.0
END_LIMIT_SECONDS = 180.0


@dataclass(frozen=True)
class Laptop:
    """The app on localazure, with a run whose job goes on until it is cancelled."""

    scene: Scene
    state: Path

    async def ask(self, method: str, path: str, key: str = "function_key") -> tuple[int, Any]:
        functions = self.scene.endpoints["functions"]
        headers = {"x-functions-key": functions[key]}
        body = {"input": ""} if path.startswith("admin/") else {}
        async with (
            asyncio.timeout(LIMIT_SECONDS),
            self.scene.http.request(
                method, f"{functions['base_url']}/{path}", headers=headers, json=body
            ) as answer,
        ):
            text = await answer.text()
            return answer.status, json.loads(text) if text else None

    def signal_bus(self, number: signal.Signals) -> None:
        part = ["-m", "localazure.supervision.part", "servicebus"]
        (bus,) = (each for each in processes_of(self.state) if each.cmdline()[1:4] == part)
        psutil.Process(bus.pid).send_signal(number)


@pytest.fixture
async def laptop(tmp_path: Path) -> AsyncGenerator[Laptop]:
    state = tmp_path / "state"
    options = make_app(state, [SITUATION], {"OTEL_EXPORTER_OTLP_ENDPOINT": ""})
    async with on_stage(options, lambda _: None) as any_scene:
        laptop = Laptop(replace(any_scene, pipeline=SITUATION), state)
        try:
            yield laptop
        finally:
            laptop.signal_bus(signal.SIGCONT)


async def test_a_hung_service_bus_freezes_nothing_else(laptop: Laptop) -> None:
    await laptop.scene.land("1", seconds=1000)
    run = (await laptop.scene.running()).instance
    assert (await laptop.ask("GET", "api/dead-letters"))[0] == 200
    laptop.signal_bus(signal.SIGSTOP)
    for name in ("reconcile", "raise_alarms"):
        status, _ = await laptop.ask("POST", f"admin/functions/{name}", "master_key")
        assert status == 202, name
    readers = [asyncio.create_task(laptop.ask("GET", "api/dead-letters")) for _ in range(READERS)]
    for _ in range(3):
        for path in ("api/runs", "api/pipelines", f"api/pipelines/{SITUATION}", f"api/runs/{run}"):
            assert (await laptop.ask("GET", path))[0] == 200, path
    for status, document in await asyncio.gather(*readers):
        assert (status, document["type"]) == (503, "/problems/unavailable")
    assert (await laptop.ask("POST", f"api/runs/{run}/cancel"))[0] == 202

    async def is_cancelled() -> bool | None:
        _, found = await laptop.ask("GET", f"api/runs/{run}")
        return found["state"] == "cancelled" or None

    await eventually(is_cancelled, END_LIMIT_SECONDS, "the cancelled run", API_POLL_SECONDS)
    laptop.signal_bus(signal.SIGCONT)

    async def answers() -> bool | None:
        return (await laptop.ask("GET", "api/dead-letters"))[0] == 200 or None

    await eventually(answers, END_LIMIT_SECONDS, "the list of dead letters", API_POLL_SECONDS)
