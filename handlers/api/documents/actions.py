"""Answers of the HTTP API: what people did."""

from __future__ import annotations

from datetime import datetime

from handlers.api.documents.base import Document


class Action(Document):
    """Something that a person did over the API."""

    at: datetime
    action: str
    on: str
    """The run, pipeline or dead letter."""
    by: str
    reason: str
    outcome: str


class ActionList(Document):
    """Answer of `GET /api/actions`, newest first."""

    actions: list[Action]
    next: str | None
