"""The input of the orchestration `retraining`."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from orchestrations.configuration.section import ignore_fields
from orchestrations.contracts.base import Contract, Failure
from orchestrations.contracts.capacity import Refusal
from orchestrations.contracts.datasets import DataAsset
from orchestrations.contracts.jobs import Job
from orchestrations.contracts.runs import RunRequest


class Waiting(Contract):
    """The state of a run's wait for its job, kept over `continue_as_new`."""

    job: Job
    state_since: datetime
    polls: int = 0
    cancel_sent: bool = False


class AwaitingNodes(Contract):
    """The state of a run's wait for nodes, kept over `continue_as_new`."""

    asset: DataAsset
    since: datetime
    refusals: tuple[Refusal, ...] = ()
    reason: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """Why it waits, as last shown in its status."""

    _of_earlier_releases = ignore_fields("ranked")


class RunInput(Contract):
    """Input of `retraining`, also when it continues as new while it waits."""

    request: RunRequest
    awaiting: AwaitingNodes | None = Field(default=None, exclude_if=lambda it: it is None)
    """Set while it waits for nodes."""
    waiting: Waiting | None = None
    """Set while it waits for its job."""
    ending: Failure | None = None
    """Set while it ends its job, after this failure."""
