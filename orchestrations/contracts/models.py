"""The model registry."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from orchestrations.configuration.pipeline import ComputeOption, Limits, Pipeline
from orchestrations.contracts.base import ActivityRequest, Contract, Traceparent
from orchestrations.contracts.datasets import Dataset


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


class Model(Contract):
    """A registered model."""

    name: str
    version: str
    path: str


class RegisterModel(ActivityRequest[Model]):
    """Input of `register_model`, with the lineage that the model keeps."""

    run: str
    pipeline: Pipeline
    dataset: Dataset
    round: int = Field(default=1, ge=1, exclude_if=lambda it: it == 1)
    """The round of training on the dataset version."""
    results: str
    """Blob with all metrics, which become properties of the model."""
    champion: str | None = None
    """The model version that it was compared with."""
    gain: float | None = None
    """How much better than the champion it is on the same held-out data, on the gate's metric."""
    challenger: bool = False
    """Registered for comparison only: it was not promoted, and never becomes the champion."""
    configuration: str | None = None
    reason: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """Why the run was requested; None: data landed."""
    redrive: Redrive | None = None
    traceparent: Traceparent = None
    """The run's span."""
