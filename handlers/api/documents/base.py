"""Answers of the HTTP API: what every answer has in common, and the two that are of no resource."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Document(BaseModel):
    """Base of all answers. `model_validate` takes objects that have the same attributes, too."""

    model_config = ConfigDict(extra="forbid", frozen=True, from_attributes=True)


class Accepted(Document):
    """Answer of what takes a while."""

    id: str
    status_url: str


class ProblemDocument(BaseModel):
    """A problem document: https://www.rfc-editor.org/rfc/rfc9457."""

    type: str
    title: str
    status: int
    detail: str
    where: str | None = None
