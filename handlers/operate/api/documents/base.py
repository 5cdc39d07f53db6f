"""Answers of the HTTP API: their base class, and the two that belong to no resource."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Document(BaseModel):
    """Base class of all answers. `model_validate` also accepts objects with the same attributes."""

    model_config = ConfigDict(extra="forbid", frozen=True, from_attributes=True)


class Accepted(Document):
    """Answer to a request that starts asynchronous work (202)."""

    id: str
    status_url: str


class ProblemDocument(BaseModel):
    """A problem document: https://www.rfc-editor.org/rfc/rfc9457."""

    type: str
    title: str
    status: int
    detail: str
    where: str | None = None
