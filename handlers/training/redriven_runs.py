"""The records of dead-lettered runs that were sent again, and the changes made to them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from handlers.platform import record_store
from handlers.platform.clients import Clients
from orchestrations.configuration.pipeline import ComputeOption
from orchestrations.contracts.base import Contract
from orchestrations.contracts.runs import RunRequest

ATTEMPTS_LIMIT = 20
FILES_LIMIT = 1_000


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class LimitChanges(_Body):
    """Limits that replace the pipeline's; an omitted limit is unchanged."""

    queued_seconds: float | None = Field(default=None, gt=0)
    running_seconds: float | None = Field(default=None, gt=0, le=21 * 86_400)


class Changes(_Body):
    """The changes; omitted fields stay as they were when the run failed."""

    compute: ComputeOption | None = None
    """The only compute option, with the keys of `compute` in `pipeline.yml`."""
    limits: LimitChanges | None = None
    attempts: int | None = Field(default=None, ge=1, le=ATTEMPTS_LIMIT)
    """The number of further attempts, including the next one."""
    job: Literal["deployed"] | None = None
    """Whether to use the currently deployed `job.yml` instead of the run's frozen one."""
    without_files: list[str] | None = Field(default=None, min_length=1, max_length=FILES_LIMIT)
    """Paths below the pipeline's prefix, as in manifests."""

    @field_validator("without_files")
    @classmethod
    def _distinct(cls, paths: list[str] | None) -> list[str] | None:
        return None if paths is None else sorted(set(paths))

    def to_document(self) -> dict[str, Any]:
        """The changes as JSON, without omitted fields; empty if there are none."""
        return self.model_dump(mode="json", exclude_none=True)


class RedrivenRun(Contract):
    """The record of a redrive. The first one fixes the next attempt of a dead-lettered run."""

    changes: Changes
    by: str
    reason: str
    at: datetime
    request: RunRequest

    @property
    def following(self) -> str:
        """The id of the run that the redrive starts."""
        return self.request.run


def redrive_record(run: str) -> str:
    """The path of the record of a run's redrive."""
    return f"runs/{run}/redrive.json"


def read_redriven(clients: Clients, run: str) -> RedrivenRun | None:
    """The redrive of a run, if there is one."""
    document = record_store.read(clients.records, redrive_record(run))
    return None if document is None else RedrivenRun.from_dict(document)


def sent_again_as(clients: Clients, request: RunRequest) -> RunRequest:
    """Apply a redrive's changes to a request, if it is the next attempt of a redriven run.

    A run that failed after it had scheduled its next attempt is dead-lettered, too. When it is
    redriven with changes, the attempt without them may still be on the queue.
    """
    if request.attempt == 1:
        return request
    previous = request.model_copy(update={"attempt": request.attempt - 1})
    redriven = read_redriven(clients, previous.run)
    return request if redriven is None else redriven.request
