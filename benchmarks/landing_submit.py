"""From a settled zone to the job that Azure ML has taken: the app, and its activities alone."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from benchmarks.harness import Bench, Sample, table
from benchmarks.landing_real import PIPELINE, Zone, landing_zone
from demo.cloud import LANDING_CONTAINER, PREFIX
from demo.digits import File
from demo.waiting import eventually
from handlers.platform.activity_adapter import bodies
from handlers.platform.clients import Clients
from handlers.platform.configuration.pipeline_files import load_pipelines
from handlers.platform.settings import Settings
from orchestrations.contracts.base import ActivityRequest, Result
from orchestrations.contracts.datasets import FreezeManifest, RegisterDataset
from orchestrations.contracts.landing import ClaimDataset, CompareBatch
from orchestrations.contracts.runs import RunRequest
from orchestrations.contracts.training import CancelJob, EnsureCapacity, GetJob, SubmitJob
from orchestrations.platform.waiting import ENDED

FILES = 300
JOB_END_TIMEOUT_SECONDS = 120.0
SHOWN = ("marker to submitted s", "settled to submitted s", "app CPU s")


def measure(bench: Bench) -> None:
    """A zone of 300 files that grows by one, again and again: `make bench NAME=landing-submit`.

    The app on `localazure up`, with the example's pipeline; each run is cancelled when Azure ML has
    its job. The turn before the first is not counted: it loads azure.ai.ml.

    * marker to submitted s: from the marker's upload on, through Event Grid and Service Bus.
    * settled to submitted s: from the freeze's begin on.
    * app CPU s: of the Functions host, for the upload, its events and the freeze.
    * the floor: the six activities that lie in series between the two, called one after the other
      in one process against the same storage and workspace, without a durable host; ms of each.
    """
    rounds = bench.rounds(7, 2)
    app, floor = asyncio.run(_take_turns(rounds, bench))
    names = {f"app, {FILES} files": app, "its activities alone (floor)": floor}
    shared = {
        name: [{key: turn[key] for key in turn if key in SHOWN} for turn in turns]
        for name, turns in names.items()
    }
    each = [{key: turn[key] for key in turn if key not in SHOWN} for turn in floor]
    bench.result.lines += table(shared) + table({"floor": each})


async def _take_turns(rounds: int, bench: Bench) -> tuple[list[Sample], list[Sample]]:
    # Once a year: the reconciler would start runs for datasets that only the floor has claimed.
    settings = {"RECONCILE_SCHEDULE": "0 0 0 1 1 *"}
    async with landing_zone(settings, bench.say) as (zone, images):
        bare = _Bare(Clients(Settings(os.environ)))
        app: list[Sample] = []
        floor: list[Sample] = []
        blobs = FILES
        for turn in range(rounds + 1):
            bench.say(f"landing-submit: round {turn} of {rounds}")
            new = FILES if turn == 0 else 1
            landed = await zone.land(itertools.islice(images, new), blobs, to_the_end=False)
            await _put(zone, next(images))
            alone = await asyncio.to_thread(bare.submit)
            await _cancel(bare)
            blobs += 2
            if turn > 0:
                app.append({key: landed[key] for key in SHOWN})
                floor.append(alone)
        return app, floor


async def _put(zone: Zone, file: File) -> None:
    path, content = file
    container = zone.cloud.blobs.get_container_client(LANDING_CONTAINER)
    await container.upload_blob(PREFIX + path, content)


async def _cancel(bare: _Bare) -> None:
    """End the job of the floor's last turn, and wait for its end: it would disturb the next."""
    job = bare.last_job
    await asyncio.to_thread(bare.call, CancelJob(job=job))

    def has_ended() -> bool:
        return bare.call(GetJob(job=job)).state in ENDED

    await eventually(
        lambda: asyncio.to_thread(has_ended), JOB_END_TIMEOUT_SECONDS, f"end of job {job}"
    )


@dataclass
class _Bare:
    """The activities' bodies, called as functions."""

    clients: Clients
    last_job: str = ""

    def call(self, request: ActivityRequest[Result]) -> Result:
        """The result of the activity of a request."""
        result: Any = bodies()[request.activity_name()](self.clients, request)
        return result

    def submit(self) -> Sample:
        """Freeze the zone and submit a job for it; seconds in all, and ms of each activity."""
        taken_ms: dict[str, float] = {}

        def call(request: ActivityRequest[Result]) -> Result:
            began = time.monotonic()
            result = self.call(request)
            taken_ms[f"{request.activity_name()} ms"] = (time.monotonic() - began) * 1000
            return result

        settings = self.clients.settings
        pipeline = load_pipelines(
            settings.pipelines_folder, records_container=settings.records_container
        )[PIPELINE]
        now = datetime.now(UTC)
        frozen = call(
            FreezeManifest(
                pipeline=PIPELINE, partition=None, freeze=f"bare-{now:%H%M%S%f}", frozen_at=now
            )
        )
        dataset, configuration = frozen.dataset, frozen.configuration
        assert dataset is not None, "a small zone is frozen by one activity"
        call(CompareBatch(pipeline=PIPELINE, dataset=dataset))
        run = RunRequest(
            pipeline=configuration.pipeline,
            dataset=dataset,
            attempt=1,
            configuration=configuration.hash,
        )
        call(ClaimDataset(request=run, batch=f"bare@{now.isoformat()}"))
        asset = call(RegisterDataset(pipeline=pipeline, dataset=dataset))
        capacity = call(EnsureCapacity(options=list(pipeline.compute)))
        job = call(SubmitJob(run=run.run, request=run, capacity=capacity, asset=asset))
        self.last_job = job.name
        return {"settled to submitted s": sum(taken_ms.values()) / 1000, **taken_ms}
