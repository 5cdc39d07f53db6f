"""Events that cannot be parsed are logged and counted by cause; each cause leads to one alert.

With a wrong subscription, every event is rejected. A record per cause counts them for all instances
of the app; reconciliation alerts operators to a new cause at once, and to a persistent one once a
day.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from handlers.landing.event_records import UNREADABLE, Entry, append_to_log
from handlers.notify.outbox import publish_alert, trouble
from handlers.platform import record_store
from handlers.platform.clients import Clients
from orchestrations.contracts.base import Contract
from orchestrations.errors import InvalidEvent, shorten

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

logger = logging.getLogger(__name__)
_REJECTED = "rejected-events/"
KIND = "events-rejected"
ALERT_INTERVAL = timedelta(days=1)
EXAMPLES_LIMIT = 3
EXAMPLE_LIMIT_CHARACTERS = 500


@dataclass(frozen=True, kw_only=True)
class RejectedEvent:
    """An event that cannot be parsed."""

    event_id: str
    subject: str
    """The event's subject; empty if it has none."""
    cause: str
    reason: str

    @classmethod
    def of(cls, error: InvalidEvent, event_id: str, subject: str) -> Self:
        """Log and return the rejected event of an error."""
        logger.warning("event rejected: %s", error)
        return cls(event_id=event_id, subject=subject, cause=error.cause, reason=str(error))


class _Cause(Contract):
    """The record of a cause, with the number of events since the last alert."""

    cause: str
    count: int = 0
    since: datetime
    """When the first of these events was rejected."""
    until: datetime
    """When the last of these events was rejected."""
    examples: tuple[dict[str, str], ...] = ()
    """The first of these events."""
    alerted_at: datetime | None = None


def keep_rejected(
    records: ContainerClient, events: Sequence[RejectedEvent], *, at: datetime
) -> None:
    """Append events to the event log, and count them by cause with one write per cause.

    Events that are delivered again after a crash of the process are counted again.
    """
    entries = [
        Entry(
            event_id=event.event_id,
            change="",
            blob=event.subject,
            etag="",
            event_time="",
            decided_at=at.isoformat(),
            decision="rejected",
            reason=event.reason,
        )
        for event in events
    ]
    append_to_log(records, UNREADABLE, entries, at=at)
    _count(records, events, at=at)


def _count(records: ContainerClient, events: Sequence[RejectedEvent], *, at: datetime) -> None:
    by_cause: dict[str, list[RejectedEvent]] = defaultdict(list)
    for event in events:
        by_cause[event.cause].append(event)
    for cause, rejected in by_cause.items():

        def add(
            document: Any | None, cause: str = cause, rejected: list[RejectedEvent] = rejected
        ) -> Any:
            before = _Cause(cause=cause, since=at, until=at)
            if document is not None:
                before = _Cause.from_dict(document)
            first = [_example(each) for each in rejected[:EXAMPLES_LIMIT]]
            return before.model_copy(
                update={
                    "count": before.count + len(rejected),
                    "since": before.since if before.count else at,
                    "until": at,
                    "examples": (*before.examples, *first)[:EXAMPLES_LIMIT],
                }
            ).to_dict()

        record_store.update(records, _record(cause), add)


def alert_rejected(clients: Clients, *, now: datetime) -> list[str]:
    """Alert operators to every cause that is new, or whose last alert is a day old.

    Returns the causes. If the process dies after an alert, the next round sends it again with the
    same id, and the topic drops it.
    """
    alerted: list[str] = []
    for document in record_store.read_all(clients.records, _REJECTED):
        cause = _Cause.from_dict(document)
        last = cause.alerted_at
        if not cause.count or (last is not None and now - last < ALERT_INTERVAL):
            continue
        hours = [f"{each:%Y-%m-%dT%H}" for each in (cause.since, cause.until)]
        hour = os.path.commonprefix(hours)  # noqa: RUF071 - their common prefix, not a path
        alert = trouble(
            KIND,
            alert_id=f"{KIND}:{cause.cause}:{cause.since.isoformat()}",
            severity="warning",
            at=now,
            data={
                "cause": cause.cause,
                "count": cause.count,
                "since": cause.since.isoformat(),
                "until": cause.until.isoformat(),
                "examples": list(cause.examples),
                "records": f"events/{UNREADABLE}/{hour}",
            },
        )
        publish_alert(clients, alert)

        def mark(document: Any | None, cause: _Cause = cause) -> Any | None:
            now_there = _Cause.from_dict(document)
            return now_there.model_copy(
                update={
                    "count": max(now_there.count - cause.count, 0),
                    "since": now_there.until,
                    "examples": (),
                    "alerted_at": now,
                }
            ).to_dict()

        record_store.update(clients.records, _record(cause.cause), mark)
        alerted.append(cause.cause)
    return alerted


def _example(event: RejectedEvent) -> dict[str, str]:
    texts = {name: str(value) for name, value in asdict(event).items() if name != "cause"}
    return {name: shorten(text, EXAMPLE_LIMIT_CHARACTERS) for name, text in texts.items()}


def _record(cause: str) -> str:
    return f"{_REJECTED}{cause}.json"
