"""Notifications of a run or a rollout, sent on every channel of its pipeline."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from orchestrations.contracts.base import ActivityRequest, Contract, Done, Traceparent
from orchestrations.contracts.jobs import JobDiagnosis
from orchestrations.contracts.rollouts import RolloutStatus
from orchestrations.contracts.runs import RunStatus
from orchestrations.pipeline import Pipeline

RunNotificationKind = Literal[
    "started",
    "succeeded",
    "not_promoted",
    "superseded",
    "cancelled",
    "retrying",
    "failed",
]
RolloutNotificationKind = Literal["deploying", "deployed", "rolled_back", "superseded", "failed"]
NotificationKind = RunNotificationKind | RolloutNotificationKind


class Notification(Contract):
    """An event of a run, or of a rollout of its model."""

    id: str
    kind: NotificationKind
    at: datetime
    status: RunStatus | RolloutStatus
    diagnosis: JobDiagnosis | None = None
    """Why the job failed, if it did."""
    callback_url: str | None = None
    traceparent: Traceparent = None
    """The run's span."""


class PublishNotification(ActivityRequest[Done]):
    """Input of `publish_notification`."""

    pipeline: Pipeline
    notification: Notification
