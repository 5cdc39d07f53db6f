"""This version goes on from the state folder of an earlier one, and reads its records.

`of_2026_11_23.tar.xz` was recorded at commit 8e84eb36: its state without keys and logs, its
pipelines, and `answers.json`, what its API answered. A run was under way when it was stopped. To
record another release, play `tests.replay.situations` of that release and keep the same parts.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from demo.console import run
from demo.rehearsal import variables
from demo.waiting import API_POLL_SECONDS, eventually
from tests.replay.record import make_app, on_stage

RECORDED = sorted(Path(__file__).parent.glob("of_*.tar.xz"))
RUNNING = "cancelled-db5721b15056baee-1"
LIMIT_SECONDS = 120
COMMANDS = {
    "runs list": "rolled-out-ed914a1cbc1e82eb-1",
    f"runs get {RUNNING}": "running",
    "pipelines get shrunk": "shrunk",
    "models list batches": "champion",
    "models get batches 2": "ed914a1cbc1e82eb",
    "rollouts list": "rolled_back",
    "dead-letters list": "QuotaExceeded",
    "actions": "it answers in another language",
    "explain landing/batches/3": "which started run batches-ed914a1cbc1e82eb-1",
    "data diff batches ed914a1cbc1e82eb c4271efe530bc458": "added",
    "what-if {pipelines}/batches/pipeline.yml --pipeline batches": "recorded  2",
}
"""What a person asks of the older records, and what the answer contains."""


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.name.partition(".")[0])
async def test_an_earlier_release_is_taken_over(tmp_path: Path, recorded: Path) -> None:
    with tarfile.open(recorded) as archive:
        # Python 3.11.2 of Debian 12 knows no filter, and Python 3.12 warns without one.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(tmp_path)  # noqa: S202 - our own file
    state = tmp_path / "state"
    options = replace(make_app(tmp_path / "now", ("batches",)), state=state)
    pipelines = options.app / "pipelines"
    shutil.rmtree(pipelines)
    shutil.copytree(state / "pipelines", pipelines)
    # The app of then made clusters without an identity; see docs/upgrade.md.
    file = pipelines / "batches" / "pipeline.yml"
    file.write_text(file.read_text("utf-8").replace("cluster: batches\n", "cluster: later\n"))
    before = json.loads((state / "answers.json").read_text("utf-8"))
    async with on_stage(options, lambda _: None) as scene:
        functions = scene.endpoints["functions"]
        headers = {"x-functions-key": functions["function_key"]}

        async def get(path: str) -> Any:
            url = f"{functions['base_url']}/api/{path}"
            async with scene.http.get(url, headers=headers) as answer:
                assert answer.status == 200, (path, await answer.text())
                return await answer.json()

        async def facts(path: str, *keys: str) -> dict[str, list[Any]]:
            listed = (await get(path))[path.replace("-", "_")]
            return {each[keys[0]]: [each[key] for key in keys[1:]] for each in listed}

        runs = await facts("runs", "id", "state", "dataset_version", "attempt", "model", "error")
        for found in runs.values():
            found[3:] = [(found[3] or {}).get("version"), (found[4] or {}).get("type")]
        assert runs == before["runs"]
        assert await facts("rollouts", "id", "state", "reason") == before["rollouts"]
        assert await facts("dead-letters", "run", "reason") == before["dead-letters"]
        assert await facts("actions", "action", "by", "reason") == before["actions"]
        assert await facts("pipelines", "name", "state") == before["pipelines"]
        for command, contains in COMMANDS.items():
            typed = command.format(pipelines=pipelines)
            done = await run(f"landfall {typed}", variables(scene.endpoints))
            assert (done.status, contains in done.output) == (0, True), (typed, done.output)

        # What was under way ends, and new data is trained on.
        await scene.post(
            f"api/runs/{RUNNING}/cancel", body=json.dumps({"by": "ada", "reason": "x"})
        )

        async def is_over() -> bool:
            return (await get(f"runs/{RUNNING}"))["state"] == "cancelled"

        await eventually(is_over, LIMIT_SECONDS, f"end of {RUNNING}", API_POLL_SECONDS)
        later = replace(scene, pipeline="batches")
        await later.land("4", accuracy=0.95)

        async def is_better() -> bool:
            newest = (await get("runs?pipeline=batches"))["runs"][0]
            assert newest["error"] is None
            return newest["model"] == {**(newest["model"] or {}), "version": "3"}

        await eventually(is_better, LIMIT_SECONDS, "third model", API_POLL_SECONDS)
