"""A run, one attempt at one dataset: what starts it, its status, and what follows its failure."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal

from pydantic import Field

from orchestrations.contracts.base import ActivityRequest, Contract, Done, Failure
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.models import Model
from orchestrations.pipeline import Pipeline

RunState = Literal[
    "registering",
    "provisioning",
    "submitting",
    "queued",
    "running",
    "judging",
    "publishing",
    "succeeded",
    "retrying",
    "rejected",
    "failed",
    "cancelled",
    "superseded",
]
TERMINAL_RUN_STATES: frozenset[RunState] = frozenset(
    {"succeeded", "retrying", "rejected", "failed", "cancelled", "superseded"}
)


class RunRequest(Contract):
    """Input of the orchestrator `retraining`, and the body of a message on the queue `retries`."""

    pipeline: Pipeline
    dataset: Dataset
    attempt: int = Field(ge=1)
    callback_url: str | None = None


class RunStatus(Contract):
    """Custom status of `retraining`: what `GET /api/runs/{id}` tells."""

    id: str
    pipeline: str
    attempt: int
    dataset_version: str
    state: RunState
    since: datetime
    job: str | None = None
    metrics: dict[str, float] | None = None
    model: Model | None = None
    error: Failure | None = None


class ScheduleRetry(ActivityRequest[Done]):
    """Input of `schedule_retry`: start this request when the delay is over."""

    ATTEMPTS: ClassVar[int] = 2_880
    RETRY_SECONDS: ClassVar[float] = 30.0

    request: RunRequest
    delay_seconds: float


class DeadLetter(ActivityRequest[Done]):
    """Input of `dead_letter`: the request as it failed, and why."""

    ATTEMPTS: ClassVar[int] = 2_880
    RETRY_SECONDS: ClassVar[float] = 30.0

    run: str
    request: RunRequest
    failure: Failure
