"""One laptop: all of it is killed during a run and goes on from a copy of its state folder.

Then each part is killed, then its Service Bus hangs.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from demo.audience import Audience, audience
from demo.cloud import PIPELINE, Cloud, Run, connect
from demo.console import run, run_by
from demo.digits import File, digit_files
from demo.stories import Stage
from demo.waiting import API_POLL_SECONDS, eventually
from harness.child_process import REPOSITORY
from harness.runtime import Runtime, processes_of, still_running
from harness.waiting import until
from tests.end_to_end.pipelines import copy_pipelines, without_torch
from tests.end_to_end.workspace import app_settings, jobs, models_by_dataset

DIGITS = 100
RUN_TIMEOUT_SECONDS = 150.0
RESTART_TIMEOUT_SECONDS = 60.0
READERS = 20
# The longest limit of a request below, with room for a busy machine. The bus is stopped for longer.
LIMIT_SECONDS = 60.0
END_LIMIT_SECONDS = 180.0


@dataclass
class Laptop:
    """The app, whose trainings wait at their first checkpoint while the file `pause` exists."""

    folder: Path
    listeners: Audience
    digits: list[File]

    def __post_init__(self) -> None:
        self.pause = self.folder / "pause"
        self.state = self.folder / ".localazure"
        # A model of few digits is inaccurate; nothing here depends on its accuracy.
        pipelines = copy_pipelines(
            self.folder / "pipelines",
            job=without_torch(self.pause),
            pipeline={"floor: 0.85": "floor: 0.2"},
        )
        ours = json.loads((REPOSITORY / "infra" / "local" / "app-settings.json").read_text())
        settings = {**ours, **self.listeners.settings, "PIPELINES_FOLDER": str(pipelines)}
        self.settings = self.folder / "app-settings.json"
        self.settings.write_text(json.dumps(settings))

    async def restore_elsewhere(self) -> tuple[str, str]:
        """Copy the state folder as the page says; the first one is gone. Return both paths."""
        ((copy, start),) = (block.commands for block in run_by(__file__))
        done = await run(copy.text, {"HOME": str(self.folder)}, self.folder)
        assert done.status == 0, done.output
        assert start.text.endswith(" -m localazure up --state ~/landfall-backup")
        lost, self.state = self.state, self.folder / "landfall-backup"
        shutil.rmtree(lost)
        return str(lost), str(self.state)

    def up(self, *arguments: str) -> Runtime:
        return Runtime(REPOSITORY, self.state, "--app-settings", str(self.settings), *arguments)

    async def land(self, cloud: Cloud, number: int) -> Run:
        """Land a batch, counted from 1; return the run that it starts."""
        self.pause.touch()
        batch = self.digits[(number - 1) * DIGITS : number * DIGITS]
        await cloud.upload(batch, lambda _: None)

        async def started() -> Run | None:
            runs = await cloud.runs(PIPELINE)
            return runs[number - 1] if len(runs) >= number else None

        return await eventually(started, RUN_TIMEOUT_SECONDS, "run", API_POLL_SECONDS)

    async def ranks(self, run: Run) -> list[psutil.Process]:
        """Wait until both ranks of a run's job train; return their processes."""

        def found() -> list[psutil.Process] | None:
            found = [each for each in processes_of(self.state) if "RANK" in each.environ()]
            ours = [each for each in found if each.environ()["AZUREML_RUN_ID"] == run["id"]]
            return ours if len(ours) == 2 else None

        return await eventually(found, RUN_TIMEOUT_SECONDS, f"ranks of {run['id']}")

    async def first_checkpoint(self, cloud: Cloud, run: Run) -> None:
        await eventually(
            lambda: cloud.first_checkpoint(run["dataset_version"]),
            RUN_TIMEOUT_SECONDS,
            f"checkpoint of {run['id']}",
        )

    async def check_end(self, cloud: Cloud, first: Run, number: int) -> Run:
        """Check that a batch has one run, with one job, one model and all notifications."""
        stage = Stage(cloud, self.listeners.mailbox, lambda _: None, digits=[])
        await stage.wait_for_runs(number - 1, 1, PIPELINE)
        await stage.wait(cloud.has_landed, "end of the landing")
        runs = await cloud.runs(PIPELINE)
        run = runs[-1]
        assert (len(runs), run["id"], run["attempt"]) == (number, first["id"], 1)
        assert run["state"] == "succeeded", run["error"]
        with app_settings(cloud.endpoints):
            found = await asyncio.to_thread(jobs, cloud)
            models = await asyncio.to_thread(models_by_dataset, cloud)
        assert found == {each["id"]: "Completed" for each in runs}
        assert models.keys() == {each["dataset_version"] for each in runs}
        assert models[run["dataset_version"]]["version"] == run["model"]["version"]
        await self.listeners.was_told(run, "started", "succeeded")
        assert await cloud.dead_letters() == []
        return run


@pytest.mark.timeout(900)
async def test_a_laptop_is_killed_at_once_and_part_by_part_and_its_service_bus_hangs(
    tmp_path: Path,
) -> None:
    async with audience() as listeners:
        laptop = Laptop(tmp_path, listeners, digit_files(tmp_path / "digits"))
        with laptop.up("--port-base", "0") as killed:
            endpoints = await asyncio.to_thread(killed.endpoints)
            async with connect(endpoints) as cloud:
                await listeners.subscribe(cloud)
                first = await laptop.land(cloud, 1)
                ranks = await laptop.ranks(first)
                await laptop.first_checkpoint(cloud, first)
                await asyncio.to_thread(killed.kill_everything)
        until(lambda: not still_running(ranks), RESTART_TIMEOUT_SECONDS, "end of the training")
        laptop.pause.unlink()
        moved = await laptop.restore_elsewhere()
        with laptop.up() as runtime:
            restored = await asyncio.to_thread(runtime.endpoints)
            assert restored == json.loads(json.dumps(endpoints).replace(*moved))
            endpoints = restored
            async with listeners.watching(endpoints) as cloud:
                ended = await laptop.check_end(cloud, first, 1)
                assert (await cloud.all_metrics(ended))["resumed_from_step"] > 0
            await kill_one_part_after_the_other(laptop, runtime, endpoints)
            async with connect(endpoints) as cloud:
                await stop_service_bus(laptop, runtime, cloud)


async def kill_one_part_after_the_other(
    laptop: Laptop, runtime: Runtime, endpoints: dict[str, Any]
) -> None:
    # No subscriber of the alerts: its SDK gives up when the Service Bus is killed.
    async with connect(endpoints) as cloud:
        run = await laptop.land(cloud, 2)
        for name in ("functions", "eventgrid", "servicebus"):
            await asyncio.to_thread(kill_and_wait, runtime, name)
        await laptop.ranks(run)
        await laptop.first_checkpoint(cloud, run)
        for name in ("storage", "machinelearning"):
            await asyncio.to_thread(kill_and_wait, runtime, name)
        laptop.pause.unlink()
    async with laptop.listeners.watching(endpoints) as cloud:
        await laptop.check_end(cloud, run, 2)
    restarts = re.findall(r"(\w+) ended \(SIGKILL\): starting it again", runtime.output)
    assert restarts == ["functions", "eventgrid", "servicebus", "storage", "machinelearning"]
    assert runtime.output.count(": starting it again") == len(restarts)


def kill_and_wait(runtime: Runtime, name: str) -> None:
    """Kill -9 one part, and wait until the supervisor has restarted it."""
    known = runtime.output.count(f"{name} is ready")
    until(lambda: runtime.part(name), RESTART_TIMEOUT_SECONDS, name).kill()
    until(
        lambda: runtime.output.count(f"{name} is ready") > known,
        RESTART_TIMEOUT_SECONDS,
        f"restart of {name}",
    )


async def stop_service_bus(laptop: Laptop, runtime: Runtime, cloud: Cloud) -> None:
    """SIGSTOP: the API goes on, and a run is cancelled meanwhile."""
    functions = cloud.endpoints["functions"]

    async def ask(method: str, path: str, key: str = "function_key") -> tuple[int, Any]:
        body = {"input": ""} if path.startswith("admin/") else {}
        url, headers = f"{functions['base_url']}/{path}", {"x-functions-key": functions[key]}
        async with (
            asyncio.timeout(LIMIT_SECONDS),
            cloud.http.request(method, url, headers=headers, json=body) as answer,
        ):
            text = await answer.text()
            return answer.status, json.loads(text) if text else None

    run = (await laptop.land(cloud, 3))["id"]

    async def is_in(state: str) -> bool:
        return (await ask("GET", f"api/runs/{run}"))[1]["state"] == state

    await eventually(lambda: is_in("running"), RUN_TIMEOUT_SECONDS, f"{run}, running")
    assert (await ask("GET", "api/dead-letters"))[0] == 200
    bus = until(lambda: runtime.part("servicebus"), RESTART_TIMEOUT_SECONDS, "servicebus")
    bus.send_signal(signal.SIGSTOP)
    try:
        for name in ("reconcile", "raise_alarms"):
            status, _ = await ask("POST", f"admin/functions/{name}", "master_key")
            assert status == 202, name
        readers = [asyncio.create_task(ask("GET", "api/dead-letters")) for _ in range(READERS)]
        for _ in range(3):
            for path in ("runs", "pipelines", f"pipelines/{PIPELINE}", f"runs/{run}"):
                assert (await ask("GET", f"api/{path}"))[0] == 200, path
        for status, document in await asyncio.gather(*readers):
            assert (status, document["type"]) == (503, "/problems/unavailable")
        assert (await ask("POST", f"api/runs/{run}/cancel"))[0] == 202
        await eventually(
            lambda: is_in("cancelled"), END_LIMIT_SECONDS, "the cancelled run", API_POLL_SECONDS
        )
    finally:
        bus.send_signal(signal.SIGCONT)

    async def answers() -> bool:
        return (await ask("GET", "api/dead-letters"))[0] == 200

    await eventually(answers, END_LIMIT_SECONDS, "the list of dead letters", API_POLL_SECONDS)
