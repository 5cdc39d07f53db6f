"""Answers of the HTTP API about runs, landings, pipelines, models and blobs."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field, RootModel

from handlers.operate.api.queues import CostState
from handlers.operate.api.requests import Accepted, Document
from orchestrations.configuration.checks import CheckStage
from orchestrations.configuration.parameters import Parameter, Value
from orchestrations.configuration.section import ignore_fields
from orchestrations.contracts.checked import CheckedRule
from orchestrations.contracts.comparison import Judged
from orchestrations.contracts.landing import (
    BatchOutcome,
    HoldReason,
    LandingAlert,
    LandingPhase,
    OpenedBy,
)
from orchestrations.contracts.outcomes import BlobState, Colour, HoldEnd, PipelineState
from orchestrations.contracts.rollouts import EndpointEffect
from orchestrations.contracts.runs import RunCost, RunState, RunStatus
from orchestrations.contracts.training import UsedCompute

ModelStage = Literal["champion", "challenger", "former", "rolled-back", "archived"]
"""`former`: the version was promoted and later replaced by another one."""


class RunSummary(RunStatus):
    """A run as lists show it: long texts are cut."""

    created_at: datetime
    ended_at: datetime | None
    compute: UsedCompute | None
    superseded_by: str | None
    next_attempt_at: datetime | None

    _of_earlier_releases = ignore_fields("speed")


class RunList(Document):
    """Answer of `GET /api/runs`, newest first."""

    runs: list[RunSummary]
    next: str | None
    """Path and query of the next page; null on the last page."""


class TimelineEntry(Document):
    """A period in one state of a run; `ended_at` is null for the current state."""

    state: RunState
    stage: CheckStage | None
    """What was checked before the training; null: the training."""
    began_at: datetime
    ended_at: datetime | None


class RunLinks(Document):
    """Related runs."""

    previous_attempt: str | None
    next_attempt: str | None
    redriven_as: str | None
    """The run that a person started from this one by a redrive."""
    redriven_from: str | None
    """The run that a person redrove; this run is its next attempt."""
    superseded_by: str | None


class Diagnosis(Document):
    """Why the job failed, according to Azure ML and its logs."""

    message: str | None
    rank: int | None
    exit_code: int | None


class RunCheck(Document):
    """The verdict of a check before the training."""

    passed: bool
    message: str
    """A sentence with the numbers that decided."""
    rules: list[CheckedRule]
    """Those that failed come first."""
    report: str | None
    """The HTML report: container and blob in the workspace's storage account.
    `GET /api/runs/{run}/report` has its text."""
    job: str | None
    job_url: str | None
    """The job in Azure ML studio, which shows the report among its outputs."""
    cost: RunCost | None
    saved: str | None
    """What the training that was not needed would have cost; null if that is not known."""


class RunReport(Document):
    """Answer of `GET /api/runs/{run}/report`."""

    html: str
    """Written by the pipeline's program: save it as a file, and never show it in a page of this
    app, where its script could act for who reads it."""


class RunGate(Judged):
    """The verdict of the gate, with the numbers of `comparison.json`, and what it means."""

    sentence: str
    """The verdict in a few words."""
    promoted: bool
    needs_a_person: bool
    """Whether a person should look."""
    colour: Colour


class RunDetail(RunSummary):
    """Answer of `GET /api/runs/{run}` for a run."""

    updated_at: datetime
    timeline: list[TimelineEntry]
    job_url: str | None
    """The job in Azure ML studio."""
    blobs: int | None
    bytes: int | None
    champion: str | None
    """The model version that the run's model is compared with."""
    data_check: RunCheck | None
    champion_check: RunCheck | None
    gate: RunGate | None
    """Null if the job wrote no `comparison.json`."""
    no_cost: str | None
    """Why `cost` is null; null if it is not."""
    all_metrics: dict[str, float]
    diagnosis: Diagnosis | None
    log: list[str]
    """The last lines of the failed rank's log."""
    remedy: str | None
    """The remedy for the error."""
    links: RunLinks
    parameters: dict[str, Value]
    """The value of each parameter that the pipeline declares."""
    trace_id: str | None
    """The id of its trace in your store of spans; null if the run is not traced."""


class LandingDetail(Document):
    """Answer of `GET /api/runs/{run}` for a landing, such as a caller's request."""

    id: str
    pipeline: str | None
    phase: LandingPhase | Literal["ended", "failed"]
    outcome: BatchOutcome | None
    run: str | None
    dataset_version: str | None
    reason: str | None
    """Why a duplicate started nothing, and how to train on the same content again."""
    created_at: datetime
    updated_at: datetime


class RunOrLanding(RootModel[RunDetail | LandingDetail]):
    """Answer of `GET /api/runs/{run}`."""


class Paused(Document):
    """The pause of a pipeline."""

    by: str
    reason: str
    at: datetime


class PauseChanged(Document):
    """Answer of a pause or a resumption."""

    paused: Paused | None
    """The pause in force after the request; null if there is none."""
    changed: bool
    """False if the request changed nothing."""
    landings: list[str]
    """Landings that were started or woken for zones with a held batch."""


class Released(Accepted):
    """Answer of a release."""

    dataset_version: str
    """What was released: the newest batch of the hold."""
    batches: int
    """How many batches were held, one after another."""


class HeldSummary(Document):
    """The newest batch of a hold, and why it is held."""

    dataset_version: str
    blobs: int
    reason: HoldReason
    ended_by: HoldEnd
    """What lets it, or the next one, be trained on: a person releases the batch or resumes the
    pipeline, or more data lands."""
    message: str
    batches: int
    """How many batches were held for this reason, one after another."""
    since: datetime
    """When the first of them was frozen."""


class TroubleSummary(Document):
    """An open cause why nothing is trained from a zone; operators were alerted to it once."""

    kind: LandingAlert
    message: str
    """What failed, from the last occurrence."""
    since: datetime
    until: datetime
    """The last occurrence."""
    count: int


class ZoneState(Document):
    """The state of a whole zone, or of a partition that settles on its own."""

    partition: str | None
    phase: LandingPhase | Literal["idle"]
    newest_event_at: datetime | None
    listed_from: datetime | None
    """Start of the listing that the last batch was frozen from."""
    held: HeldSummary | None
    """The last batch, if it is held."""
    troubles: list[TroubleSummary]
    """Open causes why nothing is trained from it, the oldest first; not the hold itself."""


class PipelineSummary(Document):
    """A pipeline as lists show it."""

    name: str
    state: PipelineState
    sentence: str
    """A sentence: the activity under way or awaited, and the reason."""
    paused: Paused | None
    last_run: RunSummary | None
    last_success: RunSummary | None
    running: list[RunSummary]
    next_attempt_at: datetime | None
    costs: list[CostState]
    """Costs of this month and the previous one, newest first; empty if its runs use no queue."""
    currency: str | None
    no_cost: str | None
    """Why `costs` is empty; null if it is not."""
    missing_settings: list[str]
    """A sentence for each missing or invalid app setting that it needs; never a value."""
    compute_warnings: list[str]
    """What its compute options cost in time or money where they run."""
    compute_not_known: list[str]
    """What could not be judged of them, such as the region of the data."""


class PipelineList(Document):
    """Answer of `GET /api/pipelines`."""

    pipelines: list[PipelineSummary]


class Champion(Document):
    """The model in service."""

    version: str


class PipelineDetail(PipelineSummary):
    """Answer of `GET /api/pipelines/{name}`."""

    container: str
    prefix: str
    marker: str | None
    parameters: dict[str, Parameter]
    """Values that a request for a run can set."""
    zones: list[ZoneState]
    champion: Champion | None
    champion_problem: str | None
    """Why the champion could not be read; null if it could."""


class ModelSummary(Document):
    """A version of a pipeline's model as lists show it."""

    name: str
    version: str
    stage: ModelStage
    run: str | None
    """Null if Landfall did not train it: a person put it in service. So are the next ones."""
    dataset_version: str | None
    registered_at: datetime | None
    metrics: dict[str, float]
    compared_with: str | None
    """The champion that the gate compared it with, on the same data."""
    gain: float | None
    """Improvement over that champion, in the gate's metric."""
    in_service_since: datetime | None
    """When a person promoted it; null if the gate did."""
    rolled_back_at: datetime | None


class ModelList(Document):
    """Answer of `GET /api/pipelines/{name}/models`, newest first."""

    pipeline: str
    name: str
    metric: str
    """The metric that the gate compares."""
    goal: Literal["maximize", "minimize"]
    floor: float
    endpoint: str | None
    """The endpoint of the pipeline's `deploy`, if it has one."""
    champion: str | None
    models: list[ModelSummary]
    next: str | None


class ModelDataset(Document):
    """The dataset version that a model was trained on."""

    version: str
    blobs: int
    bytes: int
    frozen_at: datetime
    partition: str | None
    manifest: str = Field(validation_alias="manifest_path")
    """The folder of the manifest in the records container."""


class ModelDetail(ModelSummary):
    """Answer of `GET /api/pipelines/{name}/models/{version}`: one version with its lineage."""

    pipeline: str
    endpoint: str | None
    """The endpoint of the pipeline's `deploy`, if it has one."""
    path: str
    dataset: ModelDataset | None
    """Null if the claim of the dataset version is missing."""
    job: str | None
    code: str | None
    results: str | None
    """The record with all results of the job."""
    reason: str | None
    """Why its run was requested, such as a monitor's signal; null if landed data started it."""
    difference: str | None
    """What differs from the dataset version that was trained on before; null if it is the first.
    `GET /api/pipelines/{name}/data/{version}` has all of it."""
    parameters: dict[str, Value]
    """Those of its run."""
    configuration: str | None
    redriven_from: str | None
    rolls_back_to: str | None
    """The version that a rollback of this one puts in service."""


class ModelBlob(Document):
    """A blob that a model was trained on."""

    path: str
    """Relative to the pipeline's prefix."""
    size: int
    md5: str | None
    etag: str


class ModelBlobs(Document):
    """Answer of `GET /api/pipelines/{name}/models/{version}/blobs`, sorted by path."""

    dataset_version: str
    blobs: list[ModelBlob]
    next: str | None


class ChampionChanged(Document):
    """Answer of a promotion or a rollback."""

    champion: str
    """The version in service after the request."""
    changed: bool
    """False if the version was in service before."""
    endpoint: EndpointEffect
    """What happens at the pipeline's endpoint."""
    message: str
    """The same, in a sentence."""
    rollout: str | None
    """The rollout that moves the traffic."""
    status_url: str | None
    """Where to watch it."""


class ExplainedEvent(Document):
    """An event of a blob, and the decision on it."""

    event_id: str
    change: str
    etag: str
    event_time: str
    decided_at: str
    decision: str
    reason: str


class ModelVersion(Document):
    """A version of a registered model."""

    name: str
    version: str


class SeenBy(Document):
    """A version of the pipeline's model that was trained on a blob."""

    version: str
    stage: ModelStage
    dataset_version: str
    etag: str
    """The blob's ETag when it was frozen for the training."""
    is_current: bool
    """Whether the blob still has that content."""


class InModel(Document):
    """Whether a model was trained on a blob; `contained` is null if that is not known."""

    version: str
    dataset_version: str | None
    etag: str | None
    contained: bool | None
    reason: str


class Explanation(Document):
    """Answer of `GET /api/explain`."""

    blob: str
    pipeline: str | None
    partition: str | None
    state: BlobState
    reason: str
    events: list[ExplainedEvent]
    batch: str | None = None
    opened_by: OpenedBy | None = None
    dataset_version: str | None = None
    run: str | None = None
    model: ModelVersion | None = None
    in_model: InModel | None = None
    models: list[SeenBy] | None = None
    """The newest model versions that were trained on the blob; null if they are not known."""
