"""The input of the orchestration `retraining`."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from orchestrations.contracts.base import Contract, Failure
from orchestrations.contracts.capacity import RankedOptions, Refusal
from orchestrations.contracts.datasets import DataAsset
from orchestrations.contracts.jobs import Job
from orchestrations.contracts.runs import RunRequest


class Waiting(Contract):
    """Where a run's wait for its job goes on after `continue_as_new`."""

    job: Job
    state_since: datetime
    polls: int = 0
    cancel_sent: bool = False


class AwaitingNodes(Contract):
    """Where a run's wait for nodes of its queue goes on after `continue_as_new`."""

    asset: DataAsset
    since: datetime
    refusals: tuple[Refusal, ...] = ()
    reason: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """Why it waits, as its status said last."""
    ranked: RankedOptions | None = Field(default=None, exclude_if=lambda it: it is None)
    """The compute options in the order of the first generation; None: the pipeline's order."""


class RunInput(Contract):
    """Input of `retraining`, also when it continues as new while it waits."""

    request: RunRequest
    awaiting: AwaitingNodes | None = Field(default=None, exclude_if=lambda it: it is None)
    """Set while it waits for nodes."""
    waiting: Waiting | None = None
    """Set while it waits for its job."""
    ending: Failure | None = None
    """Set while it ends its job, after this failure."""
