"""Answers of the HTTP API: runs and landings."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import RootModel

from handlers.operate.api.documents.base import Document
from orchestrations.configuration.section import ignore_fields
from orchestrations.contracts.landing import BatchOutcome, LandingPhase
from orchestrations.contracts.runs import RunState, RunStatus
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
    no_cost: str | None
    """Why `cost` is null; null if it is not."""
    all_metrics: dict[str, float]
    diagnosis: Diagnosis | None
    log: list[str]
    """The last lines of the failed rank's log."""
    remedy: str | None
    """The remedy for the error."""
    links: RunLinks
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
