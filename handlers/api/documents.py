"""The answers of the HTTP API. `/api/openapi.json` is made of them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from handlers.alarms.evaluation import AlarmKind
from orchestrations.contracts.landing import BatchOutcome, HoldReason, LandingPhase, OpenedBy
from orchestrations.contracts.rollouts import RolloutStatus
from orchestrations.contracts.run_records import UsedCompute
from orchestrations.contracts.runs import RunState, RunStatus

ModelStage = Literal["champion", "challenger", "former", "rolled-back", "archived"]
"""`former`: it was promoted, and another version is in service now."""


class Document(BaseModel):
    """Base of all answers."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RunSummary(RunStatus):
    """A run as lists show it: long texts are cut."""

    created_at: datetime
    ended_at: datetime | None
    compute: UsedCompute | None
    superseded_by: str | None
    next_attempt_at: datetime | None


class RunList(Document):
    """Answer of `GET /api/runs`, newest first."""

    runs: list[RunSummary]
    next: str | None
    """Where the next page is, relative to the host; null on the last one."""


class TimelineEntry(Document):
    """A state of a run; it goes on while `ended_at` is null, unless it is an end."""

    state: RunState
    began_at: datetime
    ended_at: datetime | None


class RunLinks(Document):
    """Other runs that belong to this one."""

    previous_attempt: str | None
    next_attempt: str | None
    redriven_as: str | None
    """What it was sent again as, by a person."""
    redriven_from: str | None
    """The run that a person sent again as this one."""
    superseded_by: str | None


class Diagnosis(Document):
    """Why the job failed, as far as Azure ML and its logs tell."""

    message: str | None
    rank: int | None
    exit_code: int | None


class RunDetail(RunSummary):
    """Answer of `GET /api/runs/{id}` for a run."""

    updated_at: datetime
    timeline: list[TimelineEntry]
    job_url: str | None
    """The job in Azure ML studio."""
    blobs: int | None
    bytes: int | None
    champion: str | None
    """Model version that the run's model is compared with."""
    all_metrics: dict[str, float]
    diagnosis: Diagnosis | None
    log: list[str]
    """The last lines of the failed rank's log."""
    remedy: str | None
    """What the error asks for."""
    links: RunLinks
    trace_id: str | None
    """Of `GET /api/traces/{id}`; null where the run is not traced."""


class TraceSpan(Document):
    """Something that took its time."""

    id: str
    parent: str | None
    """The span that caused it; it may not be among those that are there."""
    name: str
    kind: str
    """`internal`, `server`, `client`, `producer` or `consumer`."""
    service: str
    began_at: datetime
    ended_at: datetime
    attributes: dict[str, str]
    links: list[str]
    """Ids of other traces that belong to it."""
    error: str | None


class TraceDetail(Document):
    """Answer of `GET /api/traces/{id}`: parents before their children."""

    id: str
    spans: list[TraceSpan]


class RolloutDetail(RolloutStatus):
    """Answer of `GET /api/rollouts/{id}`."""

    broken: bool
    """Whether its instance failed or was terminated, so that it decides nothing any more."""


class RolloutSummary(RolloutDetail):
    """A rollout in a list."""

    created_at: datetime


class RolloutList(Document):
    """Answer of `GET /api/rollouts`, newest first."""

    rollouts: list[RolloutSummary]
    next: str | None
    """Where the next page is, relative to the host; null on the last one."""


class LandingDetail(Document):
    """Answer of `GET /api/runs/{id}` for a landing, such as a caller's request."""

    id: str
    pipeline: str | None
    phase: LandingPhase | Literal["ended", "failed"]
    outcome: BatchOutcome | None
    run: str | None
    dataset_version: str | None
    created_at: datetime
    updated_at: datetime


class ExplainedEvent(Document):
    """An event of a blob, and what was decided on it."""

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
    """Of the blob as it was trained on."""
    is_current: bool
    """Whether that is the content that the blob has now."""


class InModel(Document):
    """Whether a model was trained on a blob; `contained` is null where that is not known."""

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
    state: str
    reason: str
    events: list[ExplainedEvent]
    batch: str | None = None
    opened_by: OpenedBy | None = None
    dataset_version: str | None = None
    run: str | None = None
    model: ModelVersion | None = None
    in_model: InModel | None = None
    models: list[SeenBy] | None = None
    """The newest versions that were trained on it; null where that is not known."""


class Paused(Document):
    """A pause that is in force."""

    by: str
    reason: str
    at: datetime


class PauseChanged(Document):
    """Answer of a pause or a resumption."""

    paused: Paused | None
    """The pause that is in force now."""
    changed: bool
    """False when it was so before."""
    landings: list[str]
    """What was opened for the zones that held a batch."""


class HeldSummary(Document):
    """A batch that is held, and why."""

    dataset_version: str
    blobs: int
    reason: HoldReason
    message: str


class ZoneState(Document):
    """What settles as one: the whole zone, or a partition."""

    partition: str | None
    phase: LandingPhase | Literal["idle"]
    newest_event_at: datetime | None
    listed_from: datetime | None
    """When the last listing began that was frozen."""
    held: HeldSummary | None
    """The last batch, if it is held."""


class PipelineSummary(Document):
    """A pipeline as lists show it."""

    name: str
    state: Literal["idle", "settling", "training", "retrying", "needs-a-human", "paused"]
    sentence: str
    """What it does or waits for, and why."""
    paused: Paused | None
    last_run: RunSummary | None
    last_success: RunSummary | None
    running: list[RunSummary]
    next_attempt_at: datetime | None


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
    zones: list[ZoneState]
    champion: Champion | None
    champion_problem: str | None
    """Why the champion could not be asked for."""


class ModelSummary(Document):
    """A version of a pipeline's model as lists show it."""

    name: str
    version: str
    stage: ModelStage
    run: str
    dataset_version: str
    registered_at: datetime | None
    metrics: dict[str, float]
    compared_with: str | None
    """The champion that it was judged against, on the same data."""
    gain: float | None
    """How much better than that champion it was, on the gate's metric."""
    in_service_since: datetime | None
    """When a person put it in service; null where its metrics did."""
    rolled_back_at: datetime | None


class ModelList(Document):
    """Answer of `GET /api/pipelines/{name}/models`, newest first."""

    pipeline: str
    name: str
    metric: str
    """What the gate compares."""
    goal: Literal["maximize", "minimize"]
    floor: float
    champion: str | None
    models: list[ModelSummary]
    next: str | None


class ModelDataset(Document):
    """What a model was trained on."""

    version: str
    blobs: int
    bytes: int
    frozen_at: datetime
    partition: str | None
    manifest: str
    """The folder of the manifest in the records container."""


class ModelDetail(ModelSummary):
    """Answer of `GET /api/pipelines/{name}/models/{version}`: one version with its lineage."""

    pipeline: str
    path: str
    dataset: ModelDataset | None
    """Null where its claim is not there any more."""
    job: str | None
    code: str | None
    results: str | None
    """The record with everything that the job left."""
    reason: str | None
    """Why its run was asked for, such as a monitor's signal; null: data landed."""
    configuration: str | None
    redriven_from: str | None
    rolls_back_to: str | None
    """The version that would be in service after a rollback of this one."""


class ModelBlob(Document):
    """A blob that a model was trained on."""

    path: str
    """Relative to the pipeline's prefix."""
    size: int
    md5: str | None
    etag: str


class ModelBlobs(Document):
    """Answer of `GET /api/pipelines/{name}/models/{version}/blobs`, in order of path."""

    dataset_version: str
    blobs: list[ModelBlob]
    next: str | None


class ChampionChanged(Document):
    """Answer of a promotion or a rollback."""

    champion: str
    """The version that is in service now."""
    changed: bool
    """False when it was so before."""


class DeadLetterSummary(Document):
    """A dead letter as lists show it."""

    id: int
    """Its sequence number."""
    message_id: str
    kind: str
    """`run`, `delivery` or `message`."""
    run: str | None
    reason: str
    """The type of the error."""
    description: str
    enqueued_at: datetime | None
    remedy: str | None


class DeadLetterList(Document):
    """Answer of `GET /api/dead-letters`, oldest first."""

    dead_letters: list[DeadLetterSummary]
    next: str | None


class DeadLetterDetail(DeadLetterSummary):
    """Answer of `GET /api/dead-letters/{id}`."""

    body: str
    """The message itself, at most 64 KB of it."""


class Redriven(Document):
    """Answer of a redrive."""

    redriven: list[str]
    """The ids of the messages sent: of a run, the id of its next attempt."""


class Discarded(Document):
    """Answer of a discard."""

    discarded: list[int]


class AlarmSummary(Document):
    """A silence alarm that is on."""

    kind: AlarmKind
    pipeline: str | None
    about: str
    """The pipeline, run or app setting."""
    since: datetime
    """When the silence began; of a credential, when it expires."""
    message: str


class AlarmList(Document):
    """Answer of `GET /api/alarms`, the oldest silence first."""

    alarms: list[AlarmSummary]


class Accepted(Document):
    """Answer of what takes a while."""

    id: str
    status_url: str


class FlavorState(Document):
    """A kind of nodes, and how many of them no run of a queue holds."""

    name: str
    cluster: str
    nodes: int
    nodes_free: int
    price_per_node_hour: float


class QueueQuota(Document):
    """What a queue may hold of a flavor, and what it holds, in nodes."""

    flavor: str
    nominal_quota: int
    limit: int
    nodes_held: int
    borrowed_node_hours: float
    """Above the nominal quota, of late: what was borrowed a half-life ago counts half."""


class BudgetState(Document):
    """A queue's money in the current period."""

    amount: float
    spent: float
    """By runs whose jobs have ended."""
    reserved: float
    """For runs that hold nodes: what is expected of them."""
    period_begins_at: datetime
    period_ends_at: datetime


class RunHoldingNodes(Document):
    """A run that was admitted."""

    run: str
    pipeline: str
    flavor: str
    nodes: int
    since: datetime


class RunWaitingForNodes(Document):
    """A run that waits for nodes."""

    run: str
    pipeline: str
    since: datetime
    sentence: str
    """What it waits for, and why, with numbers."""


class QueueState(Document):
    """A queue of runs."""

    name: str
    weight: float
    quotas: list[QueueQuota]
    budget: BudgetState | None
    holding: list[RunHoldingNodes]
    waiting: list[RunWaitingForNodes]
    """The oldest first."""


class QueueList(Document):
    """Answer of `GET /api/queues`; empty where there is no `queues.yml`."""

    currency: str | None
    flavors: list[FlavorState]
    queues: list[QueueState]


class Action(Document):
    """Something that a person did over the API."""

    at: datetime
    action: str
    on: str
    """The run, pipeline or dead letter."""
    by: str
    reason: str
    outcome: str


class ActionList(Document):
    """Answer of `GET /api/actions`, newest first."""

    actions: list[Action]
    next: str | None


class ProblemDocument(BaseModel):
    """What is refused: https://www.rfc-editor.org/rfc/rfc9457."""

    type: str
    title: str
    status: int
    detail: str
    where: str | None = None


Progress = Annotated[RunDetail | LandingDetail, Field(union_mode="left_to_right")]
"""Answer of `GET /api/runs/{id}`."""
