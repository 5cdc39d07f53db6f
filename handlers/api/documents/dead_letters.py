"""Answers of the HTTP API: dead letters."""

from __future__ import annotations

from datetime import datetime

from handlers.api.documents.base import Document


class DeadLetterSummary(Document):
    """A dead letter as lists show it."""

    id: int
    """Its sequence number."""
    message_id: str
    kind: str
    """`run`, `delivery` or `message`."""
    run: str | None
    reason: str
    """The type of the error."""
    description: str
    enqueued_at: datetime | None
    remedy: str | None


class DeadLetterList(Document):
    """Answer of `GET /api/dead-letters`, oldest first."""

    dead_letters: list[DeadLetterSummary]
    next: str | None


class DeadLetterDetail(DeadLetterSummary):
    """Answer of `GET /api/dead-letters/{id}`."""

    body: str
    """The message itself, at most 64 KB of it."""


class Redriven(Document):
    """Answer of a redrive."""

    redriven: list[str]
    """The ids of the messages sent: of a run, the id of its next attempt."""


class Discarded(Document):
    """Answer of a discard."""

    discarded: list[int]
