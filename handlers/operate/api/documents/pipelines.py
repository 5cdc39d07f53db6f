"""Answers of the HTTP API: pipelines, their zones and pauses."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from handlers.operate.api.documents.base import Accepted, Document
from handlers.operate.api.documents.queues import CostState
from handlers.operate.api.documents.runs import RunSummary
from orchestrations.contracts.landing import HoldReason, LandingAlert, LandingPhase
from orchestrations.landing.holding import HoldEnd


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


PipelineState = Literal[
    "idle", "settling", "training", "retrying", "needs-a-human", "paused", "waiting"
]


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
    """Why the champion could not be read; null if it could."""
