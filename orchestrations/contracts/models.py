"""The model registry."""

from __future__ import annotations

from pydantic import Field

from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.base import ActivityRequest, Contract, Traceparent
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.lineage import Redrive


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
