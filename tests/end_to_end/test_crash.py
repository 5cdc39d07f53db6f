"""Kill -9 during a run: all processes at once, and one part after the other."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import psutil
import pytest

from demo.audience import Audience, audience
from demo.cloud import PIPELINE, Cloud, Run, connect
from demo.digits import digit_files
from demo.stories import Stage
from demo.waiting import API_POLL_SECONDS, eventually
from harness.child_process import REPOSITORY
from harness.runtime import Runtime, processes_of, still_running
from harness.waiting import until
from tests.end_to_end.pipelines import Changes, copy_pipelines, with_torch, without_torch
from tests.end_to_end.workspace import app_settings, jobs, models_by_dataset

pytestmark = pytest.mark.timeout(600)

DIGITS = 100
RUN_TIMEOUT_SECONDS = 150.0
RESTART_TIMEOUT_SECONDS = 60.0


@pytest.fixture
async def listeners() -> AsyncGenerator[Audience]:
    async with audience() as listeners:
        yield listeners


@pytest.fixture
def pause(tmp_path: Path) -> Path:
    """A file; while it exists, a training waits at its first checkpoint."""
    file = tmp_path / "pause"
    file.touch()
    return file


def settings(tmp_path: Path, listeners: Audience, job: Changes) -> Path:
    """Write app settings of this repository's app, with changes of the digits' job."""
    # A model of few digits is inaccurate; these tests do not depend on its accuracy.
    pipelines = copy_pipelines(
        tmp_path / "pipelines", job=job, pipeline={"floor: 0.85": "floor: 0.2"}
    )
    ours = json.loads((REPOSITORY / "infra" / "local" / "app-settings.json").read_text())
    file = tmp_path / "app-settings.json"
    file.write_text(json.dumps({**ours, **listeners.settings, "PIPELINES_FOLDER": str(pipelines)}))
    return file


def up(tmp_path: Path, settings: Path, *arguments: str) -> Runtime:
    return Runtime(REPOSITORY, tmp_path / "state", "--app-settings", str(settings), *arguments)


async def land(cloud: Cloud, folder: Path) -> Run:
    """Land a batch; return the run that it starts."""
    await cloud.upload(digit_files(folder)[:DIGITS], lambda _: None)

    async def started() -> Run | None:
        runs = await cloud.runs()
        return runs[0] if runs else None

    return await eventually(started, RUN_TIMEOUT_SECONDS, "run", API_POLL_SECONDS)


async def ranks_that_train(state: Path) -> list[psutil.Process]:
    """Wait for a checkpoint; return the processes that train."""

    def has_saved() -> bool:
        return any((state / "machinelearning" / "jobs").rglob("step-*.json"))

    await eventually(has_saved, RUN_TIMEOUT_SECONDS, "checkpoint")
    return [process for process in processes_of(state) if "RANK" in process.environ()]


async def check_how_it_ended(
    cloud: Cloud, endpoints: dict[str, Any], listeners: Audience, first: Run
) -> Run:
    """Check that there is one run with one job, one model and all notifications; return the run."""
    stage = Stage(cloud, listeners.mailbox, lambda _: None, digits=[])
    await stage.wait_for_runs(0, 1, PIPELINE)
    await stage.wait(cloud.has_landed, "end of the landing")
    (run,) = await cloud.runs()
    assert (run["id"], run["state"], run["attempt"]) == (first["id"], "succeeded", 1), run["error"]
    with app_settings(endpoints):
        assert await asyncio.to_thread(jobs, cloud) == {run["id"]: "Completed"}
        models = await asyncio.to_thread(models_by_dataset, cloud)
    assert models.keys() == {run["dataset_version"]}
    assert models[run["dataset_version"]]["version"] == run["model"]["version"]
    await listeners.was_told(run, "started", "succeeded")
    assert await cloud.dead_letters() == []
    return run


async def test_everything_is_killed_during_training(
    tmp_path: Path, listeners: Audience, pause: Path
) -> None:
    # With torch: the only test in this folder in which its ranks train and resume.
    app_settings_file = settings(tmp_path, listeners, with_torch(pause))
    with up(tmp_path, app_settings_file, "--port-base", "0") as killed:
        endpoints = await asyncio.to_thread(killed.endpoints)
        async with connect(endpoints) as cloud:
            await listeners.subscribe(cloud)
            first = await land(cloud, tmp_path / "digits")
            ranks = await ranks_that_train(killed.state)
            assert len(ranks) >= 2
            await asyncio.to_thread(killed.kill_everything)
    until(lambda: not still_running(ranks), RESTART_TIMEOUT_SECONDS, "end of the training")
    pause.unlink()

    with up(tmp_path, app_settings_file) as successor:
        assert await asyncio.to_thread(successor.endpoints) == endpoints
        async with listeners.watching(endpoints) as cloud:
            ended = await check_how_it_ended(cloud, endpoints, listeners, first)
            metrics = await cloud.all_metrics(ended)
    assert metrics["resumed_from_step"] > 0


async def test_one_part_after_the_other_is_killed_during_a_run(
    tmp_path: Path, listeners: Audience, pause: Path
) -> None:
    app_settings_file = settings(tmp_path, listeners, without_torch(pause))
    with up(tmp_path, app_settings_file, "--port-base", "0") as runtime:
        endpoints = await asyncio.to_thread(runtime.endpoints)
        # No subscriber of the alerts: its SDK gives up when the Service Bus is killed.
        async with connect(endpoints) as cloud:
            await listeners.subscribe(cloud)
            first = await land(cloud, tmp_path / "digits")
            for name in ("functions", "eventgrid", "servicebus"):
                await asyncio.to_thread(kill_and_wait, runtime, name)
            assert await ranks_that_train(runtime.state)
            for name in ("storage", "machinelearning"):
                await asyncio.to_thread(kill_and_wait, runtime, name)
            pause.unlink()
        async with listeners.watching(endpoints) as cloud:
            await check_how_it_ended(cloud, endpoints, listeners, first)
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
