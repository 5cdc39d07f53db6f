"""What is sent to everyone who asked to hear of a run."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal

from orchestrations.contracts.base import ActivityRequest, Contract, Done
from orchestrations.contracts.runs import RunStatus
from orchestrations.pipeline import Pipeline

NotificationKind = Literal["started", "succeeded", "retrying", "failed", "cancelled", "superseded"]


class Notification(Contract):
    """Something that happened to a run, told on every channel of its pipeline."""

    id: str
    kind: NotificationKind
    at: datetime
    status: RunStatus
    callback_url: str | None = None


class PublishNotification(ActivityRequest[Done]):
    """Input of `publish_notification`."""

    ATTEMPTS: ClassVar[int] = 2_880
    RETRY_SECONDS: ClassVar[float] = 30.0

    pipeline: Pipeline
    notification: Notification
