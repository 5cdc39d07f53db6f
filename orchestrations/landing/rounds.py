"""Rounds of training on one dataset version: whether a batch starts a further one. Pure.

The first batch with a content starts the first round. The same content is trained on again if

- a request has a new reason: the signal of a monitor, or a request over the API that gives one;
- a request finds another configuration than the last round's (`pipeline.yml`, `job.yml` or code);
- a request or a person's release finds that the last round was cancelled.

Everything else is a duplicate: uploads of the same content, and requests that change nothing. A
request is the same one, and gets the same round, however often its landing is started.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from orchestrations.contracts.landing import ClaimDataset
from orchestrations.contracts.runs import RunState
from orchestrations.contracts.transitions import TERMINAL_RUN_STATES

ATTEMPT_OVERDUE = timedelta(hours=6)
"""A next attempt that is so late does not begin by itself: its message was dead-lettered."""


@dataclass(frozen=True, kw_only=True)
class LastRound:
    """The newest round on a dataset version, as its last attempt shows it."""

    run: str
    """The last attempt; the first one if none is recorded yet."""
    state: RunState | None
    """None if it is not recorded yet."""
    configuration: str | None
    """The one whose `job.yml` the last attempt used."""
    next_attempt_at: datetime | None = None

    def is_under_way(self, now: datetime) -> bool:
        """Whether an attempt runs, or is about to."""
        if self.state != "retrying":
            return self.state not in TERMINAL_RUN_STATES
        return self.next_attempt_at is None or now < self.next_attempt_at + ATTEMPT_OVERDUE


def why_no_further_round(asked: ClaimDataset, last: LastRound) -> str | None:
    """Why a batch does not start a further round, and how to ask again; None if it does.

    Args:
        asked: by a batch that has no round yet.
        last: the newest round on its content.
    """
    pipeline = asked.request.pipeline.name
    trained = f"run {last.run} was started for the same content"
    how = f"to train on it again, request a run of {pipeline} with a reason"
    if asked.opened_by in ("request", "release") and last.state == "cancelled":
        return None
    if asked.opened_by != "request":
        return f"{trained}: {how}"
    known = None not in (asked.request.configuration, last.configuration)
    if known and asked.request.configuration != last.configuration:
        return None
    if asked.request.reason is None:
        return (
            f"{trained}, and neither pipeline.yml nor job.yml nor its code has changed since: {how}"
        )
    if last.is_under_way(asked.request.dataset.frozen_at):
        return (
            f"{trained} and has not ended: its model answers the request; when it has ended, {how}"
        )
    return None
