"""Answers of the HTTP API: runs, the traces of runs, and landings."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import RootModel

from handlers.api.documents.base import Document
from orchestrations.contracts.jobs import TrainingSpeed
from orchestrations.contracts.landing import BatchOutcome, LandingPhase
from orchestrations.contracts.run_records import UsedCompute
from orchestrations.contracts.runs import RunState, RunStatus


class RunSummary(RunStatus):
    """A run as lists show it: long texts are cut."""

    created_at: datetime
    ended_at: datetime | None
    compute: UsedCompute | None
    speed: TrainingSpeed | None
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
    """The run that a person started from it."""
    redriven_from: str | None
    """The run that a person sent again as this one."""
    superseded_by: str | None


class Diagnosis(Document):
    """Why the job failed, as far as Azure ML and its logs tell."""

    message: str | None
    rank: int | None
    exit_code: int | None


class RunDetail(RunSummary):
    """Answer of `GET /api/runs/{run}` for a run."""

    updated_at: datetime
    timeline: list[TimelineEntry]
    job_url: str | None
    """The job in Azure ML studio."""
    blobs: int | None
    bytes: int | None
    ranking: str | None
    """Why its compute options were tried in another order than the pipeline's."""
    champion: str | None
    """Model version that the run's model is compared with."""
    no_cost: str | None
    """Why there is no `cost`, where there is none."""
    all_metrics: dict[str, float]
    diagnosis: Diagnosis | None
    log: list[str]
    """The last lines of the failed rank's log."""
    remedy: str | None
    """The remedy for the error."""
    links: RunLinks
    trace_id: str | None
    """Of `GET /api/traces/{trace}`; null where the run is not traced."""


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
    """Answer of `GET /api/traces/{trace}`: parents before their children."""

    id: str
    spans: list[TraceSpan]


class LandingDetail(Document):
    """Answer of `GET /api/runs/{run}` for a landing, such as a caller's request."""

    id: str
    pipeline: str | None
    phase: LandingPhase | Literal["ended", "failed"]
    outcome: BatchOutcome | None
    run: str | None
    dataset_version: str | None
    created_at: datetime
    updated_at: datetime


class RunOrLanding(RootModel[RunDetail | LandingDetail]):
    """Answer of `GET /api/runs/{run}`."""
