"""The cluster: what becomes of a submitted job, and what it leaves."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from handlers.azure_ml.job_outputs import results_folder
from tests.simulation.fakes.azure_ml import Workspace
from tests.simulation.fakes.blob_storage import StorageAccount
from tests.simulation.scheduler import Scheduler
from tests.simulation.story import HOUR, JobEnd, JobFate, Story

RESULTS_CONTAINER = "azureml"
RECORDS_CONTAINER = "landfall"
LANDING_CONTAINER = "landing"
ENDED = frozenset({"Completed", "Failed", "Canceled"})
GOOD = {"accuracy": 0.95, "champion_accuracy": 0.9}
WORSE = {"accuracy": 0.85, "champion_accuracy": 0.9}


@dataclass
class JobLife:
    """The history of a job."""

    name: str
    pipeline: str
    dataset_version: str
    end: JobEnd
    cluster: str
    command: str
    states: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    """Second → Azure ML's status."""
    found_changed: bool = False
    """Whether it found other data than its manifest lists."""
    cancelled_at: float | None = None
    """When its cancellation was requested."""

    @property
    def has_ended(self) -> bool:
        return self.states[-1][1] in ENDED


class Cluster:
    """Runs the jobs of a workspace."""

    def __init__(
        self,
        scheduler: Scheduler,
        workspace: Workspace,
        account: StorageAccount,
        story: Story,
        changed: Callable[[str], None],
    ) -> None:
        self._scheduler = scheduler
        self._workspace = workspace
        self._account = account
        self._changed = changed
        self._chance = random.Random(f"jobs {story.seed}")
        self._fates = story.nth(JobFate)
        self.lives: dict[str, JobLife] = {}
        workspace.on_submitted = self._begin
        workspace.on_cancelled = self._cancel

    def _begin(self, job: Any) -> None:
        fate = self._fates.get(len(self.lives) + 1)
        end = "completes" if fate is None else fate.end
        life = JobLife(
            name=job.name,
            pipeline=job.tags["landfall.pipeline"],
            dataset_version=job.tags["landfall.dataset-version"],
            end=end,
            cluster=job.compute,
            command=job.command,
        )
        self.lives[job.name] = life
        life.states.append((self._scheduler.time(), "Queued"))
        queued = self._chance.uniform(20, 400)
        running = self._chance.choices([60.0, 300.0, 900.0, HOUR], weights=(4, 4, 2, 1))[0]
        if end == "never starts":
            return
        self._after(queued, life, "Running")
        if end == "never ends":
            return
        if end == "is preempted":
            self._after(queued + running / 2, life, "Queued")
            self._after(queued + running, life, "Running")
            running *= 2
        self._scheduler.after(queued + running, functools.partial(self._finish, life))

    def _after(self, seconds: float, life: JobLife, status: str) -> None:
        self._scheduler.after(seconds, functools.partial(self._set, life, status))

    def _set(self, life: JobLife, status: str) -> None:
        if life.has_ended or (life.cancelled_at is not None and status not in ENDED):
            return
        life.states.append((self._scheduler.time(), status))
        job = self._workspace.jobs[life.name]
        job.status = status
        if status == "Running" and job.started_at is None:
            job.started_at = self._scheduler.now
        if status in ENDED:
            job.ended_at = self._scheduler.now
        self._changed(life.name)

    def _cancel(self, name: str) -> None:
        life = self.lives[name]
        if life.cancelled_at is None and not life.has_ended:
            life.cancelled_at = self._scheduler.time()
            self._workspace.jobs[name].status = "CancelRequested"
            self._after(30.0, life, "Canceled")

    def _finish(self, life: JobLife) -> None:
        if life.has_ended or life.cancelled_at is not None:
            return
        changed = self._changed_files(life)
        life.found_changed = bool(changed)
        if life.end == "loses a node":
            self._workspace.jobs[life.name].error = "rank 1 on node 0 exited with code 137"
            self._set(life, "Failed")
        elif changed and life.end not in ("fails", "rejects all files"):
            self._fail(life, "DataChanged", changed)
        elif life.end == "fails":
            self._fail(life, "RuntimeError", [])
        elif life.end in ("rejects a file", "rejects all files"):
            files = [line["path"] for line in self._manifest(life)]
            self._fail(life, "DataRejected", files[: 1 if life.end == "rejects a file" else None])
        else:
            metrics: dict[str, float | None] = dict(WORSE if life.end == "is worse" else GOOD)
            if life.end == "leaves a null metric":
                metrics["accuracy"] = None
            if life.end != "leaves no metrics":
                self._leave(life, "metrics.json", metrics)
            self._set(life, "Completed")

    def _fail(self, life: JobLife, kind: str, paths: list[str]) -> None:
        files = [{"path": path, "reason": kind} for path in paths]
        message = kind + " because" * 500  # some libraries are that wordy
        self._leave(life, "error.json", {"type": kind, "message": message, "files": files})
        self._set(life, "Failed")

    def _leave(self, life: JobLife, file: str, document: Any) -> None:
        name = results_folder(life.pipeline, life.name) + file
        self._account.write(RESULTS_CONTAINER, name, json.dumps(document).encode())

    def _manifest(self, life: JobLife) -> list[dict[str, Any]]:
        """The lines of the manifest that the job was given, through its data asset."""
        reference: str = self._workspace.jobs[life.name].inputs["manifest"]["path"]
        _, name, version = reference.split(":")
        path: str = self._workspace.data[name, version].path
        folder = path.partition("/paths/")[2]
        records = self._account.container(RECORDS_CONTAINER).blobs
        return [
            json.loads(line)
            for line in records[f"{folder}manifest.jsonl"].content.decode().splitlines()
        ]

    def _changed_files(self, life: JobLife) -> list[str]:
        """Read a dataset like the trainer: from its zone, or from the copies in the manifest."""
        prefix: str = self._workspace.jobs[life.name].inputs["data"]["path"]
        datastore, _, folder = prefix.removeprefix("azureml://datastores/").partition("/paths/")
        live = self._account.container(datastore).blobs
        return [
            line["path"]
            for line in self._manifest(life)
            if (blob := live.get(folder + (line.get("file") or line["path"]))) is None
            or blob.md5.hex() != line["md5"]
        ]
