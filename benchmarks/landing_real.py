"""A zone of real small blobs on the laptop: uploaded, trained on, registered; then a few more."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import json
import os
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import psutil
from azure.storage import blob
from azure.storage.blob.aio import ContainerClient
from PIL import Image, PngImagePlugin
from yarl import URL

from benchmarks.harness import Bench, Sample, table
from demo import laptop
from demo.cloud import ENDED, LANDING_CONTAINER, MARKER, PREFIX, Cloud, connect, models
from demo.digits import File, digit_files
from demo.waiting import eventually

FILES = 200_000
QUICK_FILES = 5_000
MORE_FILES = 10
UPLOADERS = 16
PUT_HEADERS = {"x-ms-blob-type": "BlockBlob", "Content-Type": "image/png"}
PROGRESS_SECONDS = 10.0
# 200,000 small blobs pass the storage proxy in some ten minutes, and again on their way to the job.
TIMEOUT_SECONDS = 4 * 3600
PIPELINE = "digits"
PART_MODULE = "localazure.supervision.part"
# The example's own rules are for batches of seconds.
CHANGES = {
    "pipeline.yml": {
        "maximum_wait_seconds: 120": f"maximum_wait_seconds: {TIMEOUT_SECONDS}",
        "running_seconds: 3600": f"running_seconds: {TIMEOUT_SECONDS}",
        "floor: 0.85": "floor: 0.2",
    },
    "job.yml": {
        "code: ../../trainers": f"code: {laptop.APP / 'trainers'}",
        "--epochs 20": "--epochs 2",
        "timeout: 3600": f"timeout: {TIMEOUT_SECONDS}",
        "conda_file: environment/conda.yml": (
            f"conda_file: {laptop.APP / 'pipelines' / PIPELINE / 'environment' / 'conda.yml'}"
        ),
    },
}


class WrongOutcome(Exception):
    """The zone did not land as expected; the message says what happened instead."""


def measure(bench: Bench) -> None:
    """200,000 real small blobs through all of the laptop: `make bench NAME=landing-real`.

    With QUICK=1 they are 5,000. Variants of the 1,797 digits, about 300 bytes each, are uploaded to
    `localazure up`, land with the example's pipeline and job (2 epochs), and must end as one run
    and one registered model. Then ten files more, whose run is cancelled when its job is submitted.
    How far it is goes to stderr.

    * upload s: the marker included.
    * marker to manifest s: events that wait in the queue included.
    * freezing s: the listing and the manifest, from the freeze's begin to the claim of its dataset.
    * settled to submitted s: from the freeze's begin until Azure ML has the job; the first time it
      includes loading azure.ai.ml. `landing-submit` has it by itself.
    * app CPU s: of the Functions host, which runs the app, from the first upload to the manifest.
    * each later step of the run by its own name, from its timeline.
    * CPU s of each process from the first upload to the end; `jobs` are the runner and what it
      starts, once they have ended, and `benchmark` is the program that uploads.
    """
    files = bench.rounds(FILES, QUICK_FILES)
    first, more = asyncio.run(_land(files, bench.say))
    name = f"{files:,} files"
    bench.result.lines += table({name: [first]}) + table({f"{MORE_FILES} files more": [more]})


async def _land(files: int, say: Callable[[str], None]) -> tuple[Sample, Sample]:
    settings = {"RECONCILE_SCHEDULE": "0 */5 * * * *"}
    async with landing_zone(settings, say) as (zone, images):
        first = await zone.land(itertools.islice(images, files), files, to_the_end=True)
        found = await asyncio.to_thread(models, zone.cloud, PIPELINE)
        if len(found) != 1:
            raise WrongOutcome(f"{len(found)} models are registered, one is right: {found}")
        more = await zone.land(
            itertools.islice(images, MORE_FILES), files + MORE_FILES, to_the_end=False
        )
        return first, more


@contextlib.asynccontextmanager
async def landing_zone(
    settings: Mapping[str, str], say: Callable[[str], None]
) -> AsyncGenerator[tuple[Zone, Iterator[File]]]:
    """Run the example's landing zone on a new laptop; yield it and endless images to land in it.

    The environment variables of this process are set so that SDKs find the laptop's workspace.

    Args:
        settings: further app settings; `PIPELINES_FOLDER` is added.
        say: shows progress.
    """
    with tempfile.TemporaryDirectory(prefix="landing-") as folder:
        state = Path(folder)
        images = _variants(digit_files(state / "digits"))
        settings = {**settings, "PIPELINES_FOLDER": str(_write_pipelines(state / "pipelines"))}
        async with (
            laptop.running(state / "laptop", settings) as endpoints,
            connect(endpoints) as cloud,
        ):
            os.environ.update({**endpoints["app_settings"], **settings})
            yield Zone(cloud, state / "laptop", say), images


@dataclass
class Zone:
    """The example's landing zone on the laptop, with methods to land files and measure the run."""

    cloud: Cloud
    state: Path
    say: Callable[[str], None]
    known_runs: int = 0

    async def land(self, files: Iterator[File], blobs: int, *, to_the_end: bool) -> Sample:
        """Upload files and the marker; wait for the one run that follows.

        Args:
            files: the files to upload.
            blobs: the number of blobs in the zone after the upload.
            to_the_end: wait until the run has ended; else cancel it when its job is submitted.

        Raises:
            WrongOutcome: there is not one successful run with this number of blobs.
        """
        cpu_before, began = self._cpu_seconds(), time.monotonic()
        marker_at = await self._upload(files)
        uploaded = time.monotonic()
        await self._wait_for_run(lambda _: True)
        app_cpu_seconds = self._cpu_seconds()["functions"] - cpu_before["functions"]
        run = await self._wait_for_run(
            lambda each: each["state"] in (ENDED if to_the_end else {*ENDED, "queued", "running"})
        )
        if to_the_end and run["state"] != "succeeded":
            raise WrongOutcome(f"run {run['id']} ended as {run['state']}: {run['error']}")
        if not to_the_end:
            await self._cancel(run["id"])
            await self._wait_for_run(lambda each: each["state"] in ENDED)
        self.known_runs += 1
        batch = await self._batch(run["dataset_version"])
        if batch["dataset"]["blobs"] != blobs:
            raise WrongOutcome(f"{batch['dataset']['blobs']} blobs were frozen, not {blobs}")
        created_at = datetime.fromisoformat(run["created_at"])
        frozen_from = datetime.fromisoformat(batch["dataset"]["frozen_at"])
        queued_at = next(each["began_at"] for each in run["timeline"] if each["state"] == "queued")
        submitted_at = datetime.fromisoformat(queued_at)
        steps = [each for each in run["timeline"] if each["ended_at"]] if to_the_end else []
        return {
            "upload s": uploaded - began,
            "marker to manifest s": (created_at - marker_at).total_seconds(),
            "freezing s": (created_at - frozen_from).total_seconds(),
            "settled to submitted s": (submitted_at - frozen_from).total_seconds(),
            "marker to submitted s": (submitted_at - marker_at).total_seconds(),
            "app CPU s": app_cpu_seconds,
            **{f"{each['state']} s": _seconds(each) for each in steps},
            "all s": time.monotonic() - began,
            **{
                f"CPU s of {name}": seconds - cpu_before[name]
                for name, seconds in self._cpu_seconds().items()
            },
        }

    async def _upload(self, files: Iterator[File]) -> datetime:
        """Upload files, then the marker; returns when that began to be written."""
        container = self.cloud.blobs.get_container_client(LANDING_CONTAINER)
        signature = write_signature(container)
        done, shown_at = 0, time.monotonic()

        async def upload_some() -> None:
            nonlocal done, shown_at
            for path, content in files:  # all uploaders draw from the one iterator
                # Put Blob by itself: the SDK's own work would take as long as all of storage.
                url = URL(f"{container.url}/{quote(PREFIX + path)}?{signature}", encoded=True)
                async with self.cloud.http.put(url, data=content, headers=PUT_HEADERS) as response:
                    response.raise_for_status()
                done += 1
                if time.monotonic() - shown_at > PROGRESS_SECONDS:
                    shown_at = time.monotonic()
                    self.say(f"landing-real: {done:,} files are uploaded")

        async with asyncio.TaskGroup() as group:
            for _ in range(UPLOADERS):
                group.create_task(upload_some())
        marker_at = datetime.now(UTC)
        await container.upload_blob(PREFIX + MARKER, b"", overwrite=True)
        self.say(f"landing-real: {done:,} files and the marker are uploaded")
        return marker_at

    async def _wait_for_run(self, is_over: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait for the run after the known ones, until `is_over` is true of it.

        Raises:
            WrongOutcome: there is more than one new run.
        """
        shown, began = "", time.monotonic()

        async def ask() -> dict[str, Any] | None:
            nonlocal shown, began
            new = (await self.cloud.runs())[self.known_runs :]
            if len(new) > 1:
                raise WrongOutcome(f"{len(new)} runs, one is right: {new}")
            state = new[0]["state"] if new else "waited for"
            if state != shown or time.monotonic() - began > PROGRESS_SECONDS:
                shown, began = state, time.monotonic()
                self.say(f"landing-real: the run is {state}")
            return await self.cloud.api(f"runs/{new[0]['id']}") if new and is_over(new[0]) else None

        return await eventually(ask, TIMEOUT_SECONDS, "run")

    async def _cancel(self, run: str) -> None:
        functions = self.cloud.endpoints["functions"]
        async with self.cloud.http.post(
            f"{functions['base_url']}/api/runs/{run}/cancel",
            headers={"x-functions-key": functions["function_key"]},
            json={"by": "benchmark", "reason": "its freeze is what was measured"},
        ) as response:
            response.raise_for_status()

    async def _batch(self, version: str) -> dict[str, Any]:
        """The record of the batch that has this dataset version."""
        records = self.cloud.blobs.get_container_client("landfall")

        async def find() -> dict[str, Any] | None:
            async for name in records.list_blob_names(name_starts_with=f"batches/{PIPELINE}/"):
                record = json.loads(await (await records.download_blob(name)).readall())
                if record["dataset"]["version"] == version:
                    return record
            return None

        return await eventually(find, 60, f"record of the batch with version {version}")

    def _cpu_seconds(self) -> dict[str, float]:
        """Return the CPU seconds of each process of the laptop so far."""
        own = psutil.Process().cpu_times()
        seconds = {"benchmark": own.user + own.system}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                command = process.cmdline()
                times = process.cpu_times()
                if str(self.state / "storage" / "azurite") in command:
                    seconds["azurite"] = times.user + times.system
                elif command[-3:-2] == [PART_MODULE] and command[-1] == str(self.state):
                    seconds[command[-2]] = times.user + times.system
                    if command[-2] == "machinelearning":
                        seconds["jobs"] = times.children_user + times.children_system
        return seconds


def write_signature(container: ContainerClient | blob.ContainerClient) -> str:
    """Return a shared access signature to write blobs, valid for the whole benchmark."""
    return blob.generate_container_sas(
        str(container.account_name),
        container.container_name,
        account_key=container.credential.account_key,
        permission=blob.ContainerSasPermissions(create=True, write=True),
        expiry=datetime.now(UTC) + timedelta(seconds=TIMEOUT_SECONDS),
    )


def _seconds(step: dict[str, str]) -> float:
    began, ended = (datetime.fromisoformat(step[key]) for key in ("began_at", "ended_at"))
    return (ended - began).total_seconds()


def _variants(digits: Sequence[File]) -> Iterator[File]:
    """Yield digits endlessly: each scan once, then shifted. All files have different content."""
    for number in itertools.count():
        path, content = digits[number % len(digits)]
        turn = number // len(digits)
        pixels = np.asarray(Image.open(io.BytesIO(content)))
        moved = np.roll(pixels, (turn % 3 - 1, turn // 3 % 3 - 1), axis=(0, 1))
        notes = PngImagePlugin.PngInfo()
        notes.add_text("turn", str(turn))
        buffer = io.BytesIO()
        Image.fromarray(moved).save(buffer, "PNG", pnginfo=notes)
        yield path.replace(".png", f"-{turn:04}.png"), buffer.getvalue()


def _write_pipelines(folder: Path) -> Path:
    """The example's pipeline with the changes of this benchmark; returns the folder."""
    (folder / PIPELINE).mkdir(parents=True)
    for name, changes in CHANGES.items():
        text = (laptop.APP / "pipelines" / PIPELINE / name).read_text("utf-8")
        for before, after in changes.items():
            if before not in text:
                raise LookupError(f"pipelines/{PIPELINE}/{name} has no {before!r} to change")
            text = text.replace(before, after)
        (folder / PIPELINE / name).write_text(text)
    return folder
