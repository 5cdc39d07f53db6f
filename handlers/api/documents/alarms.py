"""Answers of the HTTP API: alarms."""

from __future__ import annotations

from datetime import datetime

from handlers.alarms.evaluation import AlarmKind
from handlers.api.documents.base import Document


class AlarmSummary(Document):
    """A silence alarm that is on."""

    kind: AlarmKind
    pipeline: str | None
    about: str
    """The pipeline, run or app setting."""
    since: datetime
    """When the silence began; of a credential, when it expires."""
    message: str


class AlarmList(Document):
    """Answer of `GET /api/alarms`, the oldest silence first."""

    alarms: list[AlarmSummary]
