"""GET /api/alarms: the silence alarms that are on."""

from __future__ import annotations

from datetime import datetime

from handlers.alarms.evaluation import AlarmKind
from handlers.alarms.raising import read_alarms
from handlers.api.documents.base import Document
from handlers.configuration.clients import Clients


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


def list_alarms(clients: Clients) -> AlarmList:
    """Silence alarms that are on, the oldest silence first."""
    return AlarmList(alarms=[AlarmSummary.model_validate(alarm) for alarm in read_alarms(clients)])
