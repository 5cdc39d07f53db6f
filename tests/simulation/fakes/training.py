"""The cluster: what becomes of a submitted job, and what it leaves."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from orchestrations.configuration.checks import Stage
from orchestrations.names import results_folder, run_of_job, stage_job
from tests.fakes.azure_ml import refusal
from tests.fakes.storage_account import StorageAccount
from tests.simulation.fakes.azure_ml import Workspace
from tests.simulation.scheduler import Scheduler
from tests.simulation.story import HOUR, JobEnd, JobFate, Story

RESULTS_CONTAINER = "azureml"
RECORDS_CONTAINER = "landfall"
LANDING_CONTAINER = "landing"
ENDED = frozenset({"Completed", "Failed", "Canceled"})
LOW_PRIORITY = frozenset({"spot"})
# The trainers save at the end of each epoch.
CHECKPOINT_SECONDS = 60.0
# What is left to do after the last checkpoint: evaluation, and the model's files.
SHORTEST_SECONDS = 20.0
LOST_SECONDS = 120.0
WRONG_OR_WORSE = 0.3
"""The chance that a data check finds wrong data, and that a champion does worse on new files."""
SAYS_NOTHING = ("leaves no metrics", "leaves a null metric")
STAGES: tuple[Stage, ...] = ("data-check", "champion-check", "training")
GOOD = {"accuracy": 0.95, "champion_accuracy": 0.9}
WORSE = {"accuracy": 0.85, "champion_accuracy": 0.9}
# Of the labels 7 and 8: both right, only the champion, only the challenger, both wrong.
SLICES: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "completes": ((170, 5, 10, 15), (1610, 15, 110, 65)),
    "is worse": ((170, 10, 5, 15), (1510, 110, 15, 165)),
    "breaks a slice": ((120, 60, 0, 20), (1620, 0, 160, 20)),
}
"""How a job ends → 2,000 samples, with the metrics above."""


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
    passed: bool | None = None
    """Of a check: its verdict."""
    checkpoints: str = ""
    """The folder that its program writes checkpoints to, and resumes from."""
    needs: float = 0.0
    """Seconds of work, from nothing to the end."""
    begun: int = 0
    """How often its processes began."""
    preemptions: int = 0
    running_since: float | None = None
    resumed_from: float = 0.0
    worked: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """For each time: the work in the checkpoint that it resumed from, and since; seconds."""
    cancelled_at: float | None = None
    """When its cancellation was requested."""

    @property
    def run(self) -> str:
        return run_of_job(self.name)

    @property
    def stage(self) -> Stage:
        return next(each for each in STAGES if stage_job(self.run, each) == self.name)

    @property
    def has_ended(self) -> bool:
        return self.states[-1][1] in ENDED


def comparison(end: JobEnd) -> dict[str, Any]:
    """What a job leaves that ends so."""
    kinds = ("both_right", "only_champion", "only_challenger", "both_wrong")
    seven, eight = SLICES.get(end, SLICES["completes"])
    whole = dict(zip(kinds, map(sum, zip(seven, eight, strict=True)), strict=True))
    if end == "leaves a wrong comparison":
        whole["both_wrong"] += 1
    parts = {"label:7": seven, "label:8": eight}
    slices = {name: dict(zip(kinds, part, strict=True)) for name, part in parts.items()}
    return {"metric": "accuracy", "whole": whole, "slices": slices}


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
        self._no_nodes_until = 0.0
        self.lives: dict[str, JobLife] = {}
        self._work: dict[str, float] = {}
        """Dataset version → seconds of work to train on it."""
        self.checkpoints: dict[str, float] = {}
        """Folder → seconds of work in its last checkpoint."""
        workspace.on_submitted = self._begin
        workspace.on_cancelled = self._cancel

    def _begin(self, job: Any) -> None:
        fate = self._fates.get(len(self.lives) + 1)
        life = JobLife(
            name=job.name,
            pipeline=job.tags["landfall.pipeline"],
            dataset_version=job.tags["landfall.dataset-version"],
            end="completes" if fate is None else fate.end,
            cluster=job.compute,
            command=job.command,
            checkpoints=job.outputs.get("checkpoints", {"path": job.name})["path"],
            needs=self._work_of(job.tags["landfall.dataset-version"]),
        )
        if fate is None and life.stage != "training" and self._chance.random() < WRONG_OR_WORSE:
            life.end = "is worse"
        self.lives[job.name] = life
        life.states.append((self._scheduler.time(), "Queued"))
        if life.end != "never starts":
            self._scheduler.after(self._chance.uniform(20, 400), functools.partial(self._run, life))

    def _work_of(self, version: str) -> float:
        takes = self._chance.choices([60.0, 300.0, 900.0, HOUR], weights=(4, 4, 2, 1))[0]
        return self._work.setdefault(version, takes)

    def _run(self, life: JobLife) -> None:
        """Its nodes are there: it resumes from its checkpoint."""
        now = self._scheduler.time()
        if life.has_ended or life.cancelled_at is not None:
            return
        if life.cluster in LOW_PRIORITY and now < self._no_nodes_until:
            self._scheduler.at_second(self._no_nodes_until, functools.partial(self._run, life))
            return
        life.begun += 1
        life.running_since = now
        life.resumed_from = self.checkpoints.get(life.checkpoints, 0.0)
        self._set(life, "Running")
        left = max(life.needs - life.resumed_from, SHORTEST_SECONDS)
        if life.end == "never ends":
            return
        turn = functools.partial(self._go_on, life, life.begun)
        is_lost = life.end in ("loses a node", "is preempted") and life.begun == 1
        self._scheduler.after(left / 2 if is_lost else left, turn)

    def _go_on(self, life: JobLife, turn: int) -> None:
        if life.begun != turn or life.running_since is None:
            return  # it was preempted meanwhile
        if life.end == "is preempted" and turn == 1:
            self._preempt(life, LOST_SECONDS)
        else:
            self._finish(life)

    def take_nodes(self, seconds: float) -> None:
        """The low-priority nodes are taken for a while."""
        self._no_nodes_until = self._scheduler.time() + seconds
        for life in self.lives.values():
            if life.running_since is not None and life.cluster in LOW_PRIORITY:
                self._preempt(life, seconds)

    def _preempt(self, life: JobLife, seconds: float) -> None:
        """Azure ML queues a job again whose nodes were taken, and restarts it itself."""
        if life.has_ended or life.cancelled_at is not None:
            return
        self._stop(life)
        life.preemptions += 1
        self._set(life, "Queued")
        self._scheduler.after(seconds, functools.partial(self._run, life))

    def _stop(self, life: JobLife) -> None:
        """Its processes end, wherever they are: what counts is the last checkpoint."""
        if life.running_since is None:
            return
        worked = self._scheduler.time() - life.running_since
        life.worked.append((life.resumed_from, worked))
        life.running_since = None
        reached = life.resumed_from + worked
        kept = reached - reached % CHECKPOINT_SECONDS
        self.checkpoints[life.checkpoints] = max(self.checkpoints.get(life.checkpoints, 0.0), kept)

    def post_smoke_job(self, name: str, seconds: float, fails: bool) -> None:  # noqa: FBT001 - a fact
        """Start the job that tests a batch deployment.

        Raises:
            HttpResponseError: 409, there is such a job.
        """
        if name in self._workspace.jobs:
            raise refusal(409, f"job {name} exists")
        job = SimpleNamespace(
            name=name, type="pipeline", status="Running", tags={}, studio_url="", error=None
        )
        job.code, job.id, job.started_at, job.ended_at = None, f"/jobs/{name}", None, None
        self._workspace.jobs[name] = job

        def end() -> None:
            if job.status == "Running":
                job.status = "Failed" if fails else "Completed"
                self._changed(name)

        self._scheduler.after(seconds, end)

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
            self._stop(life)
            job.ended_at = self._scheduler.now
        self._changed(life.name)

    def _cancel(self, name: str) -> None:
        if name not in self.lives:
            self._workspace.jobs[name].status = "Canceled"  # a smoke job
            return
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
            self._leave_results(life)
            self._set(life, "Completed")

    def _leave_results(self, life: JobLife) -> None:
        if life.stage != "training" and life.end not in SAYS_NOTHING:
            # A champion check passes if the champion has lost something.
            life.passed = (life.end == "is worse") == (life.stage == "champion-check")
        if life.end == "leaves no metrics":
            return
        if life.stage == "data-check":
            rule = {"name": "broken", "passed": bool(life.passed), "value": 0.5, "limit": 0.1}
            self._leave(life, "checks.json", {"passed": life.passed, "checks": [rule]})
            return
        metrics: dict[str, float | None] = dict(WORSE if life.end == "is worse" else GOOD)
        if life.end == "leaves a null metric":
            metrics["accuracy"] = None
        if life.stage == "training":
            self._leave(life, "comparison.json", comparison(life.end))
            # The same training leaves the same bits.
            bits = [metrics["accuracy"], [line["path"] for line in self._manifest(life)]]
            for file in ("model/model.json", "model/weights/part-1"):
                self._leave(life, file, {file: bits})
        self._leave(life, "metrics.json", metrics)

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
