"""What rules for data cost a batch, from the settled zone to the job that Azure ML has taken."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from benchmarks.child_process import REPOSITORY
from benchmarks.harness import Bench, Sample, table
from demo import laptop
from demo.cloud import ENDED, Cloud, connect
from demo.digits import File, digit_files
from demo.waiting import API_POLL_SECONDS, eventually

RULES = {
    "checks": {
        "files_at_least": 1,
        "bytes_of_a_file": {"at_least": 1, "at_most": 1_000_000},
        "share_of_each_label": {"at_least": 0.001, "at_most": 0.9},
        "duplicates_at_most": 0.9,
        "changed_at_most": 0.9,
    },
    "settle": {"quiet_seconds": 3600, "maximum_wait_seconds": 7200, "minimum_change": {"files": 1}},
}
WITHOUT = {"settle": {"quiet_seconds": 3600, "maximum_wait_seconds": 7200}}
PIPELINES = {"with-rules": RULES, "without-rules": WITHOUT}
FILES = 300
TIMEOUT_SECONDS = 120.0


def measure(bench: Bench) -> None:
    """A zone of 300 files that grows by one each turn: `make bench NAME=data-rules`.

    The app on `localazure up` with two pipelines, of which one has all rules of `checks` and
    `settle.minimum_change`. A request declares the zone settled; each run is cancelled when Azure
    ML has its job. The first turn of each is not counted: it loads azure.ai.ml.

    * settled to submitted s: from the request on.
    * compare_batch s: of it, from the activity's scheduling to its end: both manifests are read,
      the difference is counted and kept, and the rules are applied.
    """
    rounds = bench.rounds(15, 2)
    samples = asyncio.run(_take_turns(rounds, bench))
    bench.result.lines += table(samples)


async def _take_turns(rounds: int, bench: Bench) -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = {name: [] for name in PIPELINES}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = iter(digit_files(folder / "digits"))
        for pipeline, changes in PIPELINES.items():
            _write(folder / "pipelines", pipeline, changes)
        settings = {"PIPELINES_FOLDER": str(folder / "pipelines")}
        async with (
            laptop.running(folder / "state", settings) as endpoints,
            connect(endpoints) as cloud,
        ):
            for turn, pipeline in itertools.product(range(rounds + 1), PIPELINES):
                bench.say(f"data-rules: round {turn} of {rounds}, {pipeline}")
                sample = await _turn(cloud, pipeline, files, FILES if turn == 0 else 1)
                if turn > 0:
                    samples[pipeline].append(sample)
    return samples


def _write(folder: Path, name: str, changes: dict[str, Any]) -> None:
    """A copy of the digits' pipeline in a zone of its own, whose job only waits."""
    shutil.copytree(REPOSITORY / "pipelines" / "digits", folder / name)
    for file, more in {
        "pipeline.yml": {
            **changes,
            "source": {"container": "landing", "prefix": f"{name}/", "include": ["*.png"]},
            "model": {"name": name},
            "parameters": None,
        },
        "job.yml": {"command": "sleep 600", "code": "environment", "distribution": None},
    }.items():
        document = yaml.safe_load((folder / name / file).read_text()) | more
        kept = {key: value for key, value in document.items() if value is not None}
        (folder / name / file).write_text(yaml.safe_dump(kept))


async def _turn(cloud: Cloud, pipeline: str, files: Iterator[File], new: int) -> Sample:
    """Land so many new files; end the run as soon as Azure ML has its job."""
    await cloud.upload(
        list(itertools.islice(files, new)), lambda _: None, whole=False, folder=f"{pipeline}/"
    )
    known = len(await cloud.runs(pipeline))
    settled_at = datetime.now(UTC)
    landing = await _post(cloud, f"pipelines/{pipeline}/train", {"reason": "measured"})

    async def step(*states: str) -> dict[str, Any] | None:
        runs = await cloud.runs(pipeline)
        if len(runs) == known:
            return None
        run = await cloud.api(f"runs/{runs[-1]['id']}")
        return next((run | each for each in run["timeline"] if each["state"] in states), None)

    async def wait(*states: str) -> dict[str, Any]:
        told = f"a run of {pipeline} that is {' or '.join(states)}"
        return await eventually(lambda: step(*states), TIMEOUT_SECONDS, told, API_POLL_SECONDS)

    submitted = await wait("queued")
    compared = await _seconds_of(cloud, landing["id"], "compare_batch")
    await _post(cloud, f"runs/{submitted['id']}/cancel", {"reason": "measured"})
    await wait(*ENDED)
    taken = datetime.fromisoformat(submitted["began_at"]) - settled_at
    return {"settled to submitted s": taken.total_seconds(), "compare_batch s": compared}


async def _seconds_of(cloud: Cloud, instance: str, activity: str) -> float:
    functions = cloud.endpoints["functions"]
    url = f"{functions['base_url']}/runtime/webhooks/durabletask/instances/{instance}"
    headers = {"x-functions-key": functions["system_key"]}
    async with cloud.http.get(f"{url}?showHistory=true", headers=headers) as answer:
        events = (await answer.json())["historyEvents"]
    (event,) = [it for it in events if it.get("FunctionName") == activity]
    times = (datetime.fromisoformat(event[it]) for it in ("ScheduledTime", "Timestamp"))
    began_at, ended_at = times
    return (ended_at - began_at).total_seconds()


async def _post(cloud: Cloud, path: str, body: dict[str, str]) -> dict[str, str]:
    functions = cloud.endpoints["functions"]
    async with cloud.http.post(
        f"{functions['base_url']}/api/{path}",
        json={"by": "benchmark", **body},
        headers={"x-functions-key": functions["function_key"]},
    ) as answer:
        answer.raise_for_status()
        return await answer.json()
