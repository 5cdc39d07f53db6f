"""Answers of the HTTP API: pipelines, their zones and pauses."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from handlers.api.documents.base import Document
from handlers.api.documents.queues import CostState
from handlers.api.documents.runs import RunSummary
from orchestrations.contracts.landing import HoldReason, LandingPhase


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
    """Instances that were started or woken for the zones that held a batch."""


class HeldSummary(Document):
    """A batch that is held, and why."""

    dataset_version: str
    blobs: int
    reason: HoldReason
    message: str


class ZoneState(Document):
    """A whole zone, or a partition that settles by itself."""

    partition: str | None
    phase: LandingPhase | Literal["idle"]
    newest_event_at: datetime | None
    listed_from: datetime | None
    """When the last listing began that was frozen."""
    held: HeldSummary | None
    """The last batch, if it is held."""


PipelineState = Literal["idle", "settling", "training", "retrying", "needs-a-human", "paused"]


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
    """Of this month and the one before, the newest first; empty where no queue has its runs."""
    currency: str | None
    no_cost: str | None
    """Why there are no costs, where there are none."""
    missing_settings: list[str]
    """The app settings that it needs and does not find: a sentence each, never a value."""


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
