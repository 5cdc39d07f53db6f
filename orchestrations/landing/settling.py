"""Decisions on whether a batch is complete: before the zone is listed, and by the listing. Pure.

`overdue`: the maximum wait is over, and there is no complete batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.landing import SettlingRules, SettlingZone, ZoneActivity

# The largest difference between the storage service's and the orchestration's clocks. Last-Modified
# has whole seconds, so that a marker can seem older than data that was written before it.
CLOCK_SKEW = timedelta(seconds=1)


@dataclass(frozen=True)
class Wait:
    """Decide again at `until`, or when the marker arrives."""

    until: datetime


def decide_to_list(
    activity: ZoneActivity, rules: SettlingRules, *, opened_at: datetime, now: datetime
) -> Literal["list", "overdue"] | Wait:
    """Decide by the newest event and the marker whether to list the zone.

    Without a marker: list when the newest event is `quiet_seconds` old, or when the batch was
    opened `maximum_wait_seconds` ago. With a marker: list when the marker is at least as new as the
    newest event. If no event is known, list. Events may be lost, so `judge_dataset` makes the final
    decision.

    Args:
        activity: as read at `now`.
        rules: of the pipeline.
        opened_at: of the batch.
        now: the orchestration's time, UTC.
    """
    settle = rules.settle
    deadline = opened_at + timedelta(seconds=settle.maximum_wait_seconds)
    newest = activity.newest_event_at
    if rules.last_blob is None:
        quiet_at = now if newest is None else newest + timedelta(seconds=settle.quiet_seconds)
        until = min(quiet_at, deadline)
        return "list" if until <= now else Wait(until)
    marker_at = activity.marker_at
    if newest is None or (marker_at is not None and newest <= marker_at + 2 * CLOCK_SKEW):
        return "list"
    if now < deadline:
        return Wait(deadline)
    return "list" if settle.without_marker == "train" else "overdue"


def judge_listing(
    dataset: Dataset | None,
    rules: SettlingRules,
    activity: SettlingZone | None,
    *,
    opened_at: datetime,
    now: datetime,
) -> Literal["empty", "whole", "overdue"] | Wait:
    """Whether what was frozen is a complete batch.

    Args:
        dataset: as frozen; None if blobs were overwritten before they were copied.
        rules: that the listing was frozen with.
        activity: as read before the listing; None for a request that is settled.
        opened_at: of the batch.
        now: the orchestration's time, UTC.
    """
    if dataset is None:
        return judge_overtaken_freeze(rules, opened_at=opened_at, now=now)
    if activity is None:
        return "whole"
    if rules != activity.rules:
        return Wait(now)
    return judge_dataset(dataset, activity.marker_at, rules, opened_at=opened_at)


def judge_dataset(
    dataset: Dataset, marker_at: datetime | None, rules: SettlingRules, *, opened_at: datetime
) -> Literal["empty", "whole", "overdue"] | Wait:
    """Decide by the listing itself, which includes blobs whose events were lost.

    Args:
        dataset: the listing.
        marker_at: when the marker was written, as known before the listing.
        rules: of the pipeline.
        opened_at: of the batch.
    """
    settle = rules.settle
    # The time before the listing: its duration is not quiet time.
    now = dataset.frozen_at
    deadline = opened_at + timedelta(seconds=settle.maximum_wait_seconds)
    if dataset.newest is None:
        return "empty"
    if rules.last_blob is None:
        until = min(dataset.newest + timedelta(seconds=settle.quiet_seconds), deadline)
        return "whole" if until <= now else Wait(until)
    if is_marked(dataset, marker_at):
        return "whole"
    if now < deadline:
        return Wait(deadline)
    return "whole" if settle.without_marker == "train" else "overdue"


def judge_overtaken_freeze(
    rules: SettlingRules, *, opened_at: datetime, now: datetime
) -> Literal["overdue"] | Wait:
    """Decide after a freeze without a manifest: blobs were overwritten before they were copied.

    Args:
        rules: of the pipeline.
        opened_at: of the batch.
        now: the orchestration's time, UTC.
    """
    settle = rules.settle
    if now >= opened_at + timedelta(seconds=settle.maximum_wait_seconds):
        return "overdue"
    return Wait(now + timedelta(seconds=settle.quiet_seconds))


def overdue_details(
    activity: ZoneActivity | None,
    rules: SettlingRules,
    cause: Literal["no-marker", "overwritten-while-copied"],
    *,
    opened_at: datetime,
) -> dict[str, str | float | None]:
    """The alert of a batch whose maximum wait is over: nothing is trained.

    Args:
        activity: as last read; None for a request that is settled.
        rules: of the pipeline.
        cause: why there is no complete batch.
        opened_at: of the batch.
    """
    wait = f"{rules.settle.maximum_wait_seconds:g} s"
    if cause == "no-marker":
        message = (
            f"no batch was complete within {wait}: {rules.last_blob} is missing, or "
            "older than the data"
        )
    else:
        message = f"no batch could be copied within {wait}: its blobs were overwritten meanwhile"
    marker_at = None if activity is None else activity.marker_at
    newest = None if activity is None else activity.newest_event_at
    return {
        "cause": cause,
        "message": message,
        "opened_at": opened_at.isoformat(),
        "newest_event_at": None if newest is None else newest.isoformat(),
        "marker": rules.last_blob or "",
        "marker_at": None if marker_at is None else marker_at.isoformat(),
        "maximum_wait_seconds": rules.settle.maximum_wait_seconds,
    }


def is_marked(dataset: Dataset, marker_at: datetime | None) -> bool:
    """Whether a marker is at least as new as every listed blob."""
    return marker_at is not None and (dataset.newest is None or marker_at >= dataset.newest)


def was_listed(written_at: datetime, *, listed_from: datetime) -> bool:
    """Whether a listing that began at `listed_from` saw a write at `written_at`, or a later one.

    If so, the event of that write can be ignored.
    """
    return written_at <= listed_from - CLOCK_SKEW


def has_more(activity: ZoneActivity, *, listed_from: datetime, marker_at: datetime | None) -> bool:
    """Whether a zone has data that a frozen batch does not have.

    Args:
        activity: the current activity.
        listed_from: when the batch's listing began.
        marker_at: when the marker that completed the batch was written; None if there was none.
    """
    newest = activity.newest_event_at
    if marker_at is not None:
        if activity.marker_at is not None and activity.marker_at > marker_at:
            return True
        # Events of the marker itself, and of the data that was uploaded with it.
        if newest is not None and newest <= marker_at + 2 * CLOCK_SKEW:
            return False
    return newest is not None and not was_listed(newest, listed_from=listed_from)
