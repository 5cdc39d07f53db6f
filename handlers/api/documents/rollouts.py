"""Answers of the HTTP API: rollouts."""

from __future__ import annotations

from datetime import datetime

from handlers.api.documents.base import Document
from orchestrations.contracts.rollouts import RolloutStatus


class RolloutDetail(RolloutStatus):
    """Answer of `GET /api/rollouts/{id}`."""

    broken: bool
    """Whether its instance failed or was terminated, so that it decides nothing any more."""


class RolloutSummary(RolloutDetail):
    """A rollout in a list."""

    created_at: datetime


class RolloutList(Document):
    """Answer of `GET /api/rollouts`, newest first."""

    rollouts: list[RolloutSummary]
    next: str | None
    """Where the next page is, relative to the host; null on the last one."""
