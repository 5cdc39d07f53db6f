"""When is a batch whole? Pure decisions: before the zone is listed, and by the listing.

`overdue` is a zone whose maximum wait is over without a whole batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.landing import ZoneActivity
from orchestrations.pipeline import Pipeline

# The storage service's clocks, and the orchestration's, may differ by so much. Last-Modified has
# whole seconds, so that a marker can seem to be older than data that was written before it.
CLOCK_SKEW = timedelta(seconds=1)


@dataclass(frozen=True)
class Wait:
    """Ask again at `until`, or when the marker comes."""

    until: datetime


def before_listing(
    activity: ZoneActivity, pipeline: Pipeline, *, opened_at: datetime, now: datetime
) -> Literal["list", "overdue"] | Wait:
    """Decide by the newest event and the marker whether listing the zone is worth it.

    Without a marker: list when the newest event is `quiet_seconds` old, or when it is
    `maximum_wait_seconds` since the batch was opened. With one: list when the marker is at least
    as new as the newest event. Where no event is known, only a listing can tell. Events may be
    lost: `by_listing` has the last word.

    Args:
        activity: as it was read at `now`.
        pipeline: for its `settle`, and for what says that a batch is whole.
        opened_at: of the batch.
        now: the orchestration's time, UTC.
    """
    rules = pipeline.settle
    deadline = opened_at + timedelta(seconds=rules.maximum_wait_seconds)
    newest = activity.newest_event_at
    if pipeline.source.last_blob is None:
        quiet_at = now if newest is None else newest + timedelta(seconds=rules.quiet_seconds)
        until = min(quiet_at, deadline)
        return "list" if until <= now else Wait(until)
    marker_at = activity.marker_at
    if newest is None or (marker_at is not None and newest <= marker_at + 2 * CLOCK_SKEW):
        return "list"
    if now < deadline:
        return Wait(deadline)
    return "list" if rules.without_marker == "train" else "overdue"


def by_listing(
    dataset: Dataset, marker_at: datetime | None, pipeline: Pipeline, *, opened_at: datetime
) -> Literal["empty", "whole", "overdue"] | Wait:
    """Decide by the listing itself: it also shows what no event told of.

    Args:
        dataset: what was listed.
        marker_at: when the marker was written, as it was known before the listing.
        pipeline: for its `settle`, and for what says that a batch is whole.
        opened_at: of the batch.
    """
    rules = pipeline.settle
    # Before the listing: the time that it takes is no quiet time.
    now = dataset.frozen_at
    deadline = opened_at + timedelta(seconds=rules.maximum_wait_seconds)
    if dataset.newest is None:
        return "empty"
    if pipeline.source.last_blob is None:
        until = min(dataset.newest + timedelta(seconds=rules.quiet_seconds), deadline)
        return "whole" if until <= now else Wait(until)
    if is_marked(dataset, marker_at):
        return "whole"
    if now < deadline:
        return Wait(deadline)
    return "whole" if rules.without_marker == "train" else "overdue"


def overtaken(
    pipeline: Pipeline, *, opened_at: datetime, now: datetime
) -> Literal["overdue"] | Wait:
    """Decide what follows a freeze that was overtaken: blobs were written before they were copied.

    Args:
        pipeline: for its `settle`.
        opened_at: of the batch.
        now: the orchestration's time, UTC.
    """
    rules = pipeline.settle
    if now >= opened_at + timedelta(seconds=rules.maximum_wait_seconds):
        return "overdue"
    return Wait(now + timedelta(seconds=rules.quiet_seconds))


def is_marked(dataset: Dataset, marker_at: datetime | None) -> bool:
    """Whether a marker is at least as new as all that was listed."""
    return marker_at is not None and (dataset.newest is None or marker_at >= dataset.newest)


def was_listed(written_at: datetime, *, listed_from: datetime) -> bool:
    """Whether a listing that began at `listed_from` saw a write of that time, or what followed it.

    An event of such a write has nothing to tell any more.
    """
    return written_at <= listed_from - CLOCK_SKEW


def has_more(activity: ZoneActivity, *, listed_from: datetime, marker_at: datetime | None) -> bool:
    """Whether a zone holds more than a batch that was frozen.

    Args:
        activity: as it is now.
        listed_from: when the batch's listing began.
        marker_at: when the marker was written that made the batch whole; None where none did.
    """
    newest = activity.newest_event_at
    if marker_at is not None:
        if activity.marker_at is not None and activity.marker_at > marker_at:
            return True
        # The marker's own event, and those of the data that it came with.
        if newest is not None and newest <= marker_at + 2 * CLOCK_SKEW:
            return False
    return newest is not None and not was_listed(newest, listed_from=listed_from)
