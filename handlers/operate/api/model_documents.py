"""Answers of the HTTP API about models."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from handlers.operate.api.requests import Document
from orchestrations.configuration.parameters import Value
from orchestrations.contracts.rollouts import EndpointEffect
from orchestrations.contracts.runs import RunCost
from orchestrations.contracts.training import UsedCompute

ModelStage = Literal["champion", "challenger", "former", "rolled-back", "archived"]
"""`former`: the version was promoted and later replaced by another one."""


class ModelSummary(Document):
    """A version of a pipeline's model as lists show it."""

    name: str
    version: str
    stage: ModelStage
    run: str | None
    """Null, as `dataset_version`, if Landfall did not train it: a person put it in service."""
    dataset_version: str | None
    registered_at: datetime | None
    metrics: dict[str, float]
    compared_with: str | None
    """The champion that the gate compared it with, on the same data."""
    gain: float | None
    """Improvement over that champion, in the gate's metric."""
    in_service_since: datetime | None
    """When a person promoted it; null if the gate did."""
    rolled_back_at: datetime | None


class ModelList(Document):
    """Answer of `GET /api/pipelines/{name}/models`, newest first."""

    pipeline: str
    name: str
    metric: str
    """The metric that the gate compares."""
    goal: Literal["maximize", "minimize"]
    floor: float
    endpoint: str | None
    """The endpoint of the pipeline's `deploy`, if it has one."""
    champion: str | None
    models: list[ModelSummary]
    next: str | None


class ModelDataset(Document):
    """The dataset version that a model was trained on."""

    version: str
    blobs: int
    bytes: int
    frozen_at: datetime
    partition: str | None
    manifest: str = Field(validation_alias="manifest_path")
    """The folder of the manifest in the records container."""


class ModelDetail(ModelSummary):
    """Answer of `GET /api/pipelines/{name}/models/{version}`: one version with its lineage."""

    pipeline: str
    endpoint: str | None
    """The endpoint of the pipeline's `deploy`, if it has one."""
    path: str
    dataset: ModelDataset | None
    """Null if the claim of the dataset version is missing."""
    job: str | None
    code: str | None
    environment: str | None
    """With its version; null of a sweep or a pipeline, and of versions of earlier releases."""
    compute: UsedCompute | None
    """Null, as `cost`, if the record of its run is gone."""
    cost: RunCost | None
    results: str | None
    """The record with all results of the job."""
    reason: str | None
    """Why its run was requested, such as a monitor's signal; null if landed data started it."""
    difference: str | None
    """What differs from the dataset version that was trained on before; null if it is the first.
    `GET /api/pipelines/{name}/data/{version}` has all of it."""
    parameters: dict[str, Value]
    """Those of its run."""
    configuration: str | None
    approvals: dict[str, str]
    """Before what people were asked about it → who answered what, and why."""
    redriven_from: str | None
    rolls_back_to: str | None
    """The version that a rollback of this one puts in service."""


class ModelCard(Document):
    """Answer of `GET /api/pipelines/{name}/models/{version}/card`."""

    model: str
    """Name and version."""
    markdown: str


class ModelBlob(Document):
    """A blob that a model was trained on."""

    path: str
    """Relative to the pipeline's prefix."""
    size: int
    md5: str | None
    etag: str


class ModelBlobs(Document):
    """Answer of `GET /api/pipelines/{name}/models/{version}/blobs`, sorted by path."""

    dataset_version: str
    blobs: list[ModelBlob]
    next: str | None


class ChampionChanged(Document):
    """Answer of a promotion or a rollback."""

    champion: str
    """The version in service after the request."""
    changed: bool
    """False if the version was in service before."""
    endpoint: EndpointEffect
    """What happens at the pipeline's endpoint."""
    message: str
    """The same, in a sentence."""
    rollout: str | None
    """The rollout that moves the traffic."""
    status_url: str | None
    """Where to watch it."""


class ModelVersion(Document):
    """A version of a registered model."""

    name: str
    version: str


class SeenBy(Document):
    """A version of the pipeline's model that was trained on a blob."""

    version: str
    stage: ModelStage
    dataset_version: str
    etag: str
    """The blob's ETag when it was frozen for the training."""
    is_current: bool
    """Whether the blob still has that content."""


class InModel(Document):
    """Whether a model was trained on a blob; `contained` is null if that is not known."""

    version: str
    dataset_version: str | None
    etag: str | None
    contained: bool | None
    reason: str
