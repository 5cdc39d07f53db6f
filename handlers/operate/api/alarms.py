"""GET /api/alarms: the active silence alarms."""

from __future__ import annotations

from datetime import datetime

from handlers.operate.alarms.evaluation import AlarmKind
from handlers.operate.alarms.raising import read_alarms
from handlers.operate.api.documents.base import Document
from handlers.platform.clients import Clients


class AlarmSummary(Document):
    """An active silence alarm."""

    kind: AlarmKind
    pipeline: str | None
    about: str
    """The pipeline, run, app setting or object of a key vault that the alarm is about."""
    since: datetime
    """When the silence began; for a credential, when it expires."""
    message: str


class AlarmList(Document):
    """Answer of `GET /api/alarms`, the oldest silence first."""

    alarms: list[AlarmSummary]


def list_alarms(clients: Clients) -> AlarmList:
    """List the active silence alarms, the oldest silence first."""
    return AlarmList(alarms=[AlarmSummary.model_validate(alarm) for alarm in read_alarms(clients)])
