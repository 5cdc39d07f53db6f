"""The model registry."""

from __future__ import annotations

from orchestrations.contracts.base import ActivityRequest, Contract
from orchestrations.contracts.datasets import Dataset
from orchestrations.pipeline import Pipeline


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
    metrics: dict[str, float]
