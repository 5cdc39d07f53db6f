"""The orchestration `landing`: its input, status and result, and how a batch ended."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from orchestrations.contracts.base import ActivityRequest, Contract, Done
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.runs import RunRequest
from orchestrations.pipeline import Pipeline

OpenedBy = Literal["event", "request", "reconciliation"]


class LandingRequest(Contract):
    """Input of the orchestrator `landing`."""

    pipeline: Pipeline
    opened_by: OpenedBy
    settled: bool = False
    """The caller says that the batch is whole: freeze at once."""
    callback_url: str | None = None
    opened_at: datetime | None = None
    """Set when the landing goes on in a new generation before it has settled."""


class LandingStatus(Contract):
    """Custom status of `landing`. A hint must be raised only in phase `closing`."""

    phase: Literal["settling", "training", "closing"]
    pipeline: str
    opened_at: datetime
    run: str | None = None


class LandingResult(Contract):
    """What became of a landing's last window."""

    pipeline: str
    outcome: Literal["started", "duplicate", "empty"]
    run: str | None = None
    dataset_version: str | None = None


class Claim(Contract):
    """The one window that may train on a dataset version, and its run: kept for ever."""

    run: str
    window: str


class ClaimDataset(ActivityRequest[Claim]):
    """Input of `claim_dataset`: may this window train on that version?"""

    request: RunRequest
    """The first attempt: what a run needs that was claimed but never came to be."""
    run: str
    window: str


class RecordWindow(ActivityRequest[Done]):
    """Input of `record_window`: how a landing's window ended, for `explain`."""

    window: str
    opened_at: datetime
    opened_by: OpenedBy
    dataset: Dataset
    result: LandingResult
