"""A run, one attempt at one dataset: its input, its status, its follow-up."""

from __future__ import annotations

import json
from datetime import datetime

from pydantic import ConfigDict, Field

from orchestrations.configuration.checks import CheckStage, Stage
from orchestrations.configuration.parameters import Value
from orchestrations.configuration.pipeline import ComputeOption, Limits, Pipeline, Retry
from orchestrations.configuration.section import ignore_fields
from orchestrations.contracts.base import ActivityRequest, Contract, Done, Failure, Traceparent
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.reproductions import Reproduces
from orchestrations.contracts.run_states import GateVerdict, RunState
from orchestrations.errors import shorten
from orchestrations.names import reproduction_name, run_id, stage_job, training_name

# Azure's limit is 16 KB of UTF-16; the rest is a margin.
# https://learn.microsoft.com/azure/azure-functions/durable/durable-functions-custom-orchestration-status
STATUS_LIMIT_BYTES = 4_096


def price_of(node_seconds: float, price_per_node_hour: float) -> float:
    """The price of nodes, in the currency of `queues.yml`."""
    return node_seconds / 3600 * price_per_node_hour


class RunCost(Contract):
    """The cost of a run's job: nodes, node-seconds and price."""

    # Answers of the API always have `amount`.
    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    queue: str | None
    """None: the run was in no queue, and the price is that of its VM size."""
    flavor: str
    """Of `queues.yml`; without a queue, the VM size."""
    nodes: int
    node_seconds: float
    """Nodes times the seconds from the job's start to its end: according to Azure ML; without a
    queue, as the run saw them."""
    price_per_node_hour: float
    amount: float = Field(
        default_factory=lambda it: price_of(it["node_seconds"], it["price_per_node_hour"])
    )
    """Follows from the two fields before it; a recorded one stays."""
    currency: str


class MonthlyCost(Contract):
    """Cost of a pipeline's runs in a queue: those whose jobs ended in a month, in UTC."""

    month: str
    """For example `2026-11`."""
    queue: str
    pipeline: str
    runs: int
    node_seconds: float
    amount: float


START_REASON_LIMIT_CHARACTERS = 300


class Model(Contract):
    """A registered model."""

    name: str
    version: str
    path: str


class Redrive(Contract):
    """Changes that a person made when redriving a run: a part of the lineage.

    A run that was redriven several times carries all changes.
    """

    run: str
    """The run that was dead-lettered."""
    by: str = Field(max_length=100)
    reason: str = Field(max_length=300)
    at: datetime
    compute: ComputeOption | None = None
    """The only compute option; it replaces the pipeline's options."""
    limits: Limits | None = None
    """They replace the pipeline's limits."""
    last_attempt: int | None = None
    """The number of the last attempt, instead of the pipeline's `retry.attempts`."""
    job: str | None = None
    """Hash of the configuration whose `job.yml` is used, instead of `RunRequest.configuration`."""
    files_left_out: int = 0
    """How many files of the dead-lettered run's dataset are not in this run's."""
    record: str
    """Blob in the records container: the caller's request, with every excluded file."""


class RunRequest(Contract):
    """Input of the orchestrator `retraining`, and the body of a message on the queue `retries`."""

    pipeline: Pipeline
    dataset: Dataset
    round: int = Field(default=1, ge=1, exclude_if=lambda it: it == 1)
    """The round of training on the dataset version; see `orchestrations.landing.decisions`."""
    attempt: int = Field(ge=1)
    receiver: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """The webhook of the pipeline that the request named."""
    configuration: str | None = None
    """Hash of the `pipeline.yml`, `job.yml` and code that were in force when the batch was frozen;
    the text of the files is kept under it. None: `job.yml` as it is deployed."""
    reason: str | None = Field(
        default=None,
        max_length=START_REASON_LIMIT_CHARACTERS,
        exclude_if=lambda it: it is None,
    )
    """Why it was requested, such as a monitor's signal; None: data landed."""
    parameters: dict[str, Value] = Field(default={}, exclude_if=lambda it: not it)
    """The value of each parameter that the pipeline declares."""
    redrive: Redrive | None = None
    """A person's changes; `pipeline` and `dataset` already include them."""
    checks: tuple[CheckStage, ...] = Field(default=(), exclude_if=lambda it: not it)
    """What is still checked before the training, in order; the first one is the run's stage."""
    base: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """The last trained version before this one, if there are checks."""
    difference: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """A sentence: what differs from the last trained version. None: it is the first one."""
    judgement: Judgement | None = Field(default=None, exclude_if=lambda it: it is None)
    """Set while a run of which the gate promotes the model waits for people's approval."""
    reproduces: Reproduces | None = Field(default=None, exclude_if=lambda it: it is None)
    """The model that this run trains again, to compare: it registers none."""
    traceparent: Traceparent = None
    """The batch's span."""

    _of_earlier_releases = ignore_fields("callback_url")

    @property
    def run(self) -> str:
        """The id of the requested run."""
        return run_id(self.pipeline.name, self.training, self.attempt)

    @property
    def own_judgement(self) -> Judgement | None:
        """The judgement, if it is of this attempt: a redriven run has that of the one before."""
        found = self.judgement
        return found if found is not None and found.status.id == self.run else None

    @property
    def training(self) -> str:
        """The name of the dataset version's round, or of the reproduction of its model."""
        name, again = training_name(self.dataset.version, self.round), self.reproduces
        return name if again is None else reproduction_name(name, again.number)

    @property
    def stage(self) -> Stage:
        """What the run does now."""
        return self.checks[0] if self.checks else "training"

    @property
    def job(self) -> str:
        """The name of the stage's job."""
        return stage_job(self.run, self.stage)

    @property
    def job_file(self) -> str:
        """The file of the stage's job, relative to the pipeline's folder."""
        return self.pipeline.jobs[self.stage][0]

    @property
    def compute(self) -> list[ComputeOption]:
        """The compute options of the stage's job."""
        return self.pipeline.jobs[self.stage][1]

    @property
    def retry(self) -> Retry:
        """The rule for further attempts."""
        retry = self.pipeline.retry
        changed = None if self.redrive is None else self.redrive.last_attempt
        return retry if changed is None else retry.model_copy(update={"attempts": changed})

    @property
    def job_configuration(self) -> str | None:
        """The configuration whose `job.yml` is used; None: `job.yml` as it is deployed."""
        changed = None if self.redrive is None else self.redrive.job
        return self.configuration if changed is None else changed


class RunStatus(Contract):
    """Custom status of `retraining`, and the document of `GET /api/runs/{id}`.

    Azure fails an orchestration whose custom status exceeds 16 KB of UTF-16. So it holds only the
    gate's metrics; `results` names the record with all metrics and the full errors.
    """

    id: str
    pipeline: str
    attempt: int
    dataset_version: str
    state: RunState
    stage: CheckStage | None = Field(default=None, exclude_if=lambda it: it is None)
    """What is checked before the training; None: the training itself."""
    since: datetime
    job: str | None = None
    metrics: dict[str, float] | None = None
    model: Model | None = None
    error: Failure | None = None
    reason: str | None = None
    """Why the run was not promoted, not needed, held, superseded or cancelled; or, if the job wrote
    `comparison.json` or the pipeline asks people, why it was promoted; or what it waits for."""
    verdict: GateVerdict | None = Field(default=None, exclude_if=lambda it: it is None)
    """The gate's, if the job wrote `comparison.json` or the pipeline asks people."""
    approval: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """The question to people that the run waits for."""
    results: str | None = None
    """Blob in the records container with the job's metrics or error in full."""
    redrive: Redrive | None = None
    """A person's changes, if the run was redriven with changes."""
    reproduces: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """The model that the run trains again, to compare: name and version."""
    cost: RunCost | None = Field(default=None, exclude_if=lambda it: it is None)
    """The cost of its job's nodes; set for a run in a queue, after its job has ended."""


class Judgement(Contract):
    """What the gate said of a run's model; kept over `continue_as_new` while people are asked."""

    status: RunStatus
    """With the metrics, and the record of all results."""
    champion: str | None
    verdict: GateVerdict
    reason: str
    gain: float | None
    """The lead over the champion; None without one."""
    polls: int = 0
    """0: people have not been asked yet."""
    handed_over: bool = False
    """Whether the run goes on as an instance that no landing waits for."""


class CancelRequest(Contract):
    """A request to cancel a run or a promotion."""

    by: str
    reason: str


class Scheduled(Contract):
    """Whether the next attempt was scheduled."""

    cancel: CancelRequest | None = Field(default=None, exclude_if=lambda it: it is None)
    """A request to cancel the run that failed; if set, nothing was scheduled."""


class ScheduleRetry(ActivityRequest[Scheduled]):
    """Input of `schedule_retry`: start the run of this request after the delay."""

    request: RunRequest
    delay_seconds: float


class DeadLetter(ActivityRequest[Done]):
    """Input of `dead_letter`: the request of the failed run, and why it failed."""

    run: str
    request: RunRequest
    failure: Failure


def fit_status(status: RunStatus) -> RunStatus:
    """The status, with its free texts shortened so that it fits into `STATUS_LIMIT_BYTES`."""
    limit = 1_000
    while status_bytes(status) > STATUS_LIMIT_BYTES and limit > 1:
        limit //= 2
        status = status.model_copy(
            update={
                "error": _cut(status.error, limit, "message"),
                "reason": status.reason and shorten(status.reason, limit),
                "redrive": _cut(status.redrive, limit, "by", "reason"),
            }
        )
    return status


def status_bytes(status: RunStatus) -> int:
    """The size of a custom status as the durable extension counts it: UTF-16 of its JSON."""
    return 2 * len(json.dumps(status.to_dict()))


def _cut(part: Contract | None, limit_characters: int, *texts: str) -> Contract | None:
    if part is None:
        return None
    return part.model_copy(
        update={name: shorten(getattr(part, name), limit_characters) for name in texts}
    )
