"""Answers of the HTTP API about runs, landings, pipelines and blobs."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import RootModel

from handlers.operate.api.model_documents import InModel, ModelVersion, SeenBy
from handlers.operate.api.queues import CostState
from handlers.operate.api.requests import Accepted, Document
from orchestrations.configuration.checks import CheckStage
from orchestrations.configuration.parameters import Parameter, Value
from orchestrations.configuration.section import ignore_fields
from orchestrations.contracts.checked import CheckedRule
from orchestrations.contracts.comparison import Judged
from orchestrations.contracts.holds import HoldEnd, HoldReason
from orchestrations.contracts.landing import BatchOutcome, LandingAlert, LandingPhase, OpenedBy
from orchestrations.contracts.outcomes import BlobState, Colour, PipelineState
from orchestrations.contracts.reproductions import Reproduction
from orchestrations.contracts.run_states import RunState
from orchestrations.contracts.runs import RunCost, RunStatus
from orchestrations.contracts.training import UsedCompute


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
    reproduction: Reproduction | None
    """The answer of a run that reproduces a model; null if it does not, or has none yet."""
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
    model: str
    """The name of the model that it registers."""
    endpoint: str | None
    """The endpoint of its `deploy`, if it has one."""
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


class ExplainedEvent(Document):
    """An event of a blob, and the decision on it."""

    event_id: str
    change: str
    etag: str
    event_time: str
    decided_at: str
    decision: str
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
