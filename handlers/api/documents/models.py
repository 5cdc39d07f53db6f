"""Answers of the HTTP API: registered models."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from handlers.api.documents.base import Document

ModelStage = Literal["champion", "challenger", "former", "rolled-back", "archived"]
"""`former`: it was promoted, and another version is in service now."""


class ModelSummary(Document):
    """A version of a pipeline's model as lists show it."""

    name: str
    version: str
    stage: ModelStage
    run: str
    dataset_version: str
    registered_at: datetime | None
    metrics: dict[str, float]
    compared_with: str | None
    """The champion that it was judged against, on the same data."""
    gain: float | None
    """How much better than that champion it was, on the gate's metric."""
    in_service_since: datetime | None
    """When a person put it in service; null where its metrics did."""
    rolled_back_at: datetime | None


class ModelList(Document):
    """Answer of `GET /api/pipelines/{name}/models`, newest first."""

    pipeline: str
    name: str
    metric: str
    """The metric that the gate compares."""
    goal: Literal["maximize", "minimize"]
    floor: float
    champion: str | None
    models: list[ModelSummary]
    next: str | None


class ModelDataset(Document):
    """Data that a model was trained on."""

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
    path: str
    dataset: ModelDataset | None
    """Null where its claim is not there any more."""
    job: str | None
    code: str | None
    results: str | None
    """The record with everything that the job left."""
    reason: str | None
    """Why its run was asked for, such as a monitor's signal; null: data landed."""
    configuration: str | None
    redriven_from: str | None
    rolls_back_to: str | None
    """The version that would be in service after a rollback of this one."""


class ModelBlob(Document):
    """A blob that a model was trained on."""

    path: str
    """Relative to the pipeline's prefix."""
    size: int
    md5: str | None
    etag: str


class ModelBlobs(Document):
    """Answer of `GET /api/pipelines/{name}/models/{version}/blobs`, in order of path."""

    dataset_version: str
    blobs: list[ModelBlob]
    next: str | None


class ChampionChanged(Document):
    """Answer of a promotion or a rollback."""

    champion: str
    """The version that is in service now."""
    changed: bool
    """False when it was so before."""
