"""An Azure ML workspace to run `retraining` against: its one job, and how activities answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from handlers.platform.run_records import merge
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.base import Contract, Done
from orchestrations.contracts.checked import EndedByCheck
from orchestrations.contracts.datasets import DataAsset, Superseded
from orchestrations.contracts.runs import CancelRequest, Model, RunStatus, Scheduled
from orchestrations.contracts.training import (
    Capacity,
    Job,
    JobDiagnosis,
    JobState,
    Results,
    RunInput,
    RunRecord,
)
from orchestrations.errors import LandfallError
from orchestrations.names import run_id
from orchestrations.platform.waiting import WAKE_UP
from orchestrations.training.retraining import retraining
from tests.simulation.task_hub import HubInstance
from tests.unit.orchestrations.driver import Driver, answered_by
from tests.unit.orchestrations.examples import DATASET, PIPELINE, run_request

GOOD = {"accuracy": 0.97, "champion_accuracy": 0.93}


def left(metrics: dict[str, float], **more: Any) -> Results:
    return Results(metrics=metrics, record="runs/digits/results.json", **more)


@dataclass
class Cluster:
    """A workspace with one job. `states` gives the second at which each state begins."""

    states: list[tuple[float, JobState]]
    results: Results = field(default_factory=lambda: left(GOOD))
    of_checks: dict[str, Results] = field(default_factory=dict)
    """Stage → what the job of a check leaves."""
    champion: str | None = "1"
    job_error: str | None = None
    superseded_by: str | None = None
    refuse: dict[str, LandfallError] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    outages: dict[str, range] = field(default_factory=dict)
    """Activity → the seconds in which it fails."""
    cancel: CancelRequest | None = None
    cluster_ready_after: float = 0
    cancelled: bool = False
    submitted: bool = False
    scheduled: bool = False
    """Whether a next attempt is scheduled."""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    looks: list[datetime] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.driver = Driver(
            activities=answered_by(self._answer), orchestrators={"retraining": retraining}
        )

    def _answer(self, name: str, request: Any) -> Contract:
        self.calls.append((name, request))
        if name in self.broken or int(self.seconds) in self.outages.get(name, ()):
            raise ConnectionError(f"{name} is unreachable")
        if name in self.refuse:
            raise self.refuse[name]
        return self.answer(name, request)

    def answer(self, name: str, request: Any) -> Contract:
        match name:
            case "check_superseded":
                return Superseded(by=self.superseded_by)
            case "register_dataset":
                return DataAsset(name="digits", version=DATASET.version)
            case "ensure_capacity":
                option = request.options[0]
                ready = self.seconds >= self.cluster_ready_after
                return Capacity(cluster=option.cluster, nodes=option.nodes, ready=ready)
            case "diagnose_job":
                return JobDiagnosis(message=self.job_error, rank=1, exit_code=137, log=("boom",))
            case "submit_job":
                return self._submit(request.request.job)
            case "get_job":
                self.looks.append(self.driver.now)
                return self.job(request.job)
            case _:
                return self._answer_after_the_job(name, request)

    def _answer_after_the_job(self, name: str, request: Any) -> Contract:
        match name:
            case "read_results":
                left = self.of_checks.get(request.stage, self.results)
                return left.model_copy(update={"cancel": self.cancel})
            case "end_by_check":
                return EndedByCheck(
                    run=request.request.run,
                    stage=request.request.checks[0],
                    message=request.message,
                    at=request.at,
                    configuration=None,
                    batch="landing-digits@1",
                    saved="2 node hours",
                )
            case "register_model":
                return Model(name="digits", version="1", path="azureml://…")
            case "cancel_job":
                self.cancelled = True
            case "schedule_retry":
                self.scheduled = self.cancel is None
                return Scheduled(cancel=self.cancel)
            case _:
                pass
        return Done()

    def _submit(self, name: str) -> Job:
        """As `handlers.training.jobs.submit_job` does."""
        if self.cancel is None:
            self.submitted = True
        job = self.job(name)
        return job if self.submitted else job.model_copy(update={"state": "cancelled"})

    def cancel_at(self, seconds: float, request: CancelRequest) -> None:
        """A person cancels the run of the first attempt."""

        def cancel() -> None:
            self.cancel = request

        self.driver.at(seconds, cancel)
        self.wake_at(seconds)

    def job(self, name: str) -> Job:
        reached = filter(lambda each: each[0] <= self.seconds, self.states)
        state: JobState = max(reached, key=lambda each: each[0])[1]
        return Job(
            name=name,
            results_container="azureml-blobstore",
            state="cancelled" if self.cancelled else state,
            champion=self.champion,
            champion_score=0.9,
            cancel=self.cancel,
        )

    @property
    def seconds(self) -> float:
        return self.driver.seconds

    def run(self, attempt: int = 1, pipeline: Pipeline = PIPELINE) -> RunStatus:
        instance = self.start(attempt, pipeline)
        assert instance.error is None
        return RunStatus.from_dict(instance.output)

    def start(self, attempt: int = 1, pipeline: Pipeline = PIPELINE, **more: Any) -> HubInstance:
        request = run_request(attempt).model_copy(update={"pipeline": pipeline, **more})
        name = run_id("digits", DATASET.version, attempt)
        instance = self.driver.start("retraining", name, RunInput(request=request).to_dict())
        self.driver.run()
        return instance

    def wake_at(self, *seconds: float) -> None:
        """Raise the event for the first attempt."""
        run = run_id("digits", DATASET.version, 1)
        for each in seconds:
            self.driver.raise_event_at(each, run, WAKE_UP)

    def requests(self, name: str) -> list[Any]:
        return [request for called, request in self.calls if called == name]

    @property
    def told(self) -> list[str]:
        return [each.notification.kind for each in self.requests("publish_notification")]


QUICK: list[tuple[float, JobState]] = [(0, "queued"), (10, "running"), (40, "completed")]
SLOW: list[tuple[float, JobState]] = [(0, "queued"), (100, "running"), (300, "completed")]
FAILING: list[tuple[float, JobState]] = [(0, "queued"), (10, "running"), (40, "failed")]


def recorded(cluster: Cluster) -> RunRecord:
    """The run's record after all calls of `record_run`."""
    record: RunRecord | None = None
    for request in cluster.requests("record_run"):
        record = merge(record, request.record)
    assert record is not None
    return record
