"""When is a batch whole? A pure decision over one look at the landing zone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from orchestrations.contracts.datasets import Survey
from orchestrations.pipeline import Settle


@dataclass(frozen=True)
class Empty:
    """There is nothing to train on."""


@dataclass(frozen=True)
class Whole:
    """The batch is whole: freeze it."""


@dataclass(frozen=True)
class Unsettled:
    """Look again at `until`, or when the marker blob lands."""

    until: datetime


Decision = Empty | Whole | Unsettled


def settle(survey: Survey, rules: Settle, *, opened_at: datetime, now: datetime) -> Decision:
    """Decide by the listing alone; events are only hints that it is worth a look.

    A batch is whole when the marker is at least as new as the data, when nothing had been written
    for `quiet_seconds` when the listing was asked for (`now`), or when it is `maximum_wait_seconds`
    since the landing was opened. The storage service's clock (`survey.newest`) is compared with the
    orchestration's: a skew between the two shifts the quiet time, and can delay a batch by no more
    than the maximum wait.
    """
    if survey.newest is None:
        return Empty()
    if survey.marker is not None and survey.marker >= survey.newest:
        return Whole()
    quiet_at = survey.newest + timedelta(seconds=rules.quiet_seconds)
    deadline = opened_at + timedelta(seconds=rules.maximum_wait_seconds)
    until = min(quiet_at, deadline)
    return Whole() if until <= now else Unsettled(until)
