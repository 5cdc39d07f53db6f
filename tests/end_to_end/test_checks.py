"""`pipelines/digits-checked`: batches wait, are not needed, are held by a data check, and train.

Every successful activity runs twice, as after the loss of a worker.
"""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from demo import laptop
from demo.cloud import Cloud, connect
from demo.digits import File, digit_files
from demo.waiting import API_POLL_SECONDS, eventually
from localazure.runtime.environment import RUN_ACTIVITIES_TWICE
from tests.end_to_end.pipelines import PIPELINES

NAME = "digits-checked"
SECONDS = 300
"""Enough for a run with its checks on a machine that does much else."""

pytestmark = pytest.mark.timeout(1_500)


async def land(cloud: Cloud, files: list[File]) -> None:
    await cloud.upload(files, lambda _: None, folder=f"{NAME}/")


async def ended(cloud: Cloud, count: int) -> dict[str, Any]:
    """The newest of so many runs, when it has ended."""

    async def newest() -> Any:
        runs = await cloud.runs(NAME)
        return runs[-1] if len(runs) == count and runs[-1]["ended_at"] else None

    run = await eventually(newest, SECONDS, f"{count} runs", API_POLL_SECONDS)
    return await cloud.api(f"runs/{run['id']}")


async def is_(cloud: Cloud, state: str) -> dict[str, Any]:
    async def reached() -> Any:
        found = await cloud.api(f"pipelines/{NAME}")
        return found if found["state"] == state else None

    return await eventually(reached, SECONDS, f"state {state}", API_POLL_SECONDS)


def stages(run: dict[str, Any]) -> list[str | None]:
    """Which jobs the run had."""
    return [each["stage"] for each in run["timeline"] if each["state"] == "judging"]


def blank(number: int) -> File:
    buffer = io.BytesIO()
    Image.new("L", (8, 8), number).save(buffer, "PNG")
    return f"0/blank-{number}.png", buffer.getvalue()


async def test_only_right_and_useful_data_is_trained_on(tmp_path: Path) -> None:
    for folder in (NAME, "templates"):
        shutil.copytree(PIPELINES / folder, tmp_path / "pipelines" / folder)
    settings = {RUN_ACTIVITIES_TWICE: "true", "PIPELINES_FOLDER": str(tmp_path / "pipelines")}
    digits = digit_files(tmp_path / "digits")
    async with (
        laptop.running(tmp_path / "state", settings) as endpoints,
        connect(endpoints) as cloud,
    ):
        await land(cloud, digits[:200])
        first = await ended(cloud, 1)
        assert first["state"] == "succeeded", first
        assert stages(first) == ["data-check", None]
        assert first["data_check"]["passed"]
        assert first["data_check"]["report"].endswith("_data-check/results/report.html")
        report = await cloud.api(f"runs/{first['id']}/report")
        assert report["html"].startswith("<!doctype html>"), report

        await land(cloud, digits[200:205])
        waiting = await is_(cloud, "waiting")
        assert "5 of 20 files" in waiting["sentence"]

        await land(cloud, digits[205:240])
        second = await ended(cloud, 2)
        assert second["state"] == "not_needed", second
        assert stages(second) == ["data-check", "champion-check"]
        check = second["champion_check"]
        assert "has not lost more than champion_check.margin (0.1)" in check["message"]
        assert first["id"] in check["saved"]

        await land(cloud, [*digits[240:270], *map(blank, range(3))])
        third = await ended(cloud, 3)
        assert third["state"] == "held", third
        assert stages(third) == ["data-check"]
        assert [each["name"] for each in third["data_check"]["rules"] if not each["passed"]] == [
            "blank"
        ]
        (zone,) = (await is_(cloud, "needs-a-human"))["zones"]
        assert "3 of 273 images: 0/blank-0.png" in zone["held"]["message"]
        difference = await cloud.api(f"pipelines/{NAME}/data/{third['dataset_version']}")
        assert difference["base"] == first["dataset_version"], "the second batch was not trained on"

        functions = endpoints["functions"]
        async with cloud.http.post(
            f"{functions['base_url']}/api/pipelines/{NAME}/release",
            json={"dataset_version": third["dataset_version"], "by": "ada", "reason": "as meant"},
            headers={"x-functions-key": functions["function_key"]},
        ) as answer:
            assert answer.status == 202, await answer.text()
        fourth = await ended(cloud, 4)
        assert stages(fourth) == [None]
        assert fourth["state"] in ("succeeded", "not_promoted"), fourth
        assert fourth["dataset_version"] == third["dataset_version"]
        await is_(cloud, "idle")
