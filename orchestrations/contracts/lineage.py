"""Changes that a person made to a run; the run, its notifications and its model keep them."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from orchestrations.configuration.pipeline import ComputeOption, Limits
from orchestrations.contracts.base import Contract


class Redrive(Contract):
    """Changes that a person made when redriving a run: a part of the lineage.

    A run that was redriven several times carries all changes.
    """

    run: str
    """The run that was dead-lettered."""
    by: str = Field(max_length=100)
    reason: str = Field(max_length=300)
    at: datetime
    compute: ComputeOption | None = None
    """The only compute option; it replaces the pipeline's options."""
    limits: Limits | None = None
    """They replace the pipeline's limits."""
    last_attempt: int | None = None
    """The number of the last attempt, instead of the pipeline's `retry.attempts`."""
    job: str | None = None
    """Hash of the configuration whose `job.yml` is used, instead of `RunRequest.configuration`."""
    files_left_out: int = 0
    """How many files of the dead-lettered run's dataset are not in this run's."""
    record: str
    """Blob in the records container: the caller's request, with every excluded file."""
