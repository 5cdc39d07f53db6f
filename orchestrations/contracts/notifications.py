"""Notifications of a run or a rollout, sent on every channel of its pipeline."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from orchestrations.configuration.pipeline import Pipeline
from orchestrations.configuration.section import ignore_fields
from orchestrations.contracts.base import ActivityRequest, Contract, Done, Traceparent
from orchestrations.contracts.rollouts import RolloutStatus
from orchestrations.contracts.run_states import RunNotificationKind
from orchestrations.contracts.runs import RunStatus
from orchestrations.contracts.training import JobDiagnosis

RolloutNotificationKind = Literal[
    "deploying", "awaiting_approval", "deployed", "rolled_back", "superseded", "failed"
]
NotificationKind = RunNotificationKind | RolloutNotificationKind


class Notification(Contract):
    """An event of a run, or of a rollout of its model."""

    id: str
    kind: NotificationKind
    at: datetime
    status: RunStatus | RolloutStatus
    diagnosis: JobDiagnosis | None = None
    """Why the job failed, if it did."""
    receiver: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """The webhook of the pipeline that the run's request named."""
    traceparent: Traceparent = None
    """The run's span."""

    _of_earlier_releases = ignore_fields("callback_url")


class PublishNotification(ActivityRequest[Done]):
    """Input of `publish_notification`."""

    pipeline: Pipeline
    notification: Notification
