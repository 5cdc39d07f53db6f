"""Answers of the HTTP API: the history of a blob."""

from __future__ import annotations

from handlers.operate.api.documents.base import Document
from handlers.operate.api.documents.models import ModelStage
from orchestrations.contracts.landing import OpenedBy
from orchestrations.contracts.outcomes import BlobState


class ExplainedEvent(Document):
    """An event of a blob, and the decision on it."""

    event_id: str
    change: str
    etag: str
    event_time: str
    decided_at: str
    decision: str
    reason: str


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


class Explanation(Document):
    """Answer of `GET /api/explain`."""

    blob: str
    pipeline: str | None
    partition: str | None
    state: BlobState
    reason: str
    events: list[ExplainedEvent]
    batch: str | None = None
    opened_by: OpenedBy | None = None
    dataset_version: str | None = None
    run: str | None = None
    model: ModelVersion | None = None
    in_model: InModel | None = None
    models: list[SeenBy] | None = None
    """The newest model versions that were trained on the blob; null if they are not known."""
