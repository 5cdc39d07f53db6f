"""The records of rollouts: their index, each step's begin, the traffic that each has set, its end.

The index has an empty blob for each rollout, with the list's entry in its metadata. Its name is
`rollout-index/<time>_<rollout>`; the time counts down, so listings are newest first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from handlers.platform import record_store
from handlers.platform.clients import Clients
from handlers.platform.record_store import countdown, first_page, list_entries
from orchestrations.contracts.outcomes import end_of
from orchestrations.contracts.rollouts import (
    EndpointTraffic,
    RolloutOutcome,
    RolloutState,
    RolloutStatus,
    Traffic,
)

_FOLDER = "rollout-index/"
_STATUS = "status"


@dataclass(frozen=True)
class RolloutPage:
    """Rollouts, newest first, with their status at the time of the request."""

    rollouts: Sequence[RolloutStatus]
    following: str | None
    """The `after` of the next page; None on the last page."""


def index_rollout(clients: Clients, requested: RolloutStatus) -> None:
    """Add a rollout to the index. Idempotent: its message may be delivered more than once."""
    name = f"rollouts/{requested.id}/asked.json"
    if not record_store.create(clients.records, name, requested.to_dict()):
        requested = RolloutStatus.from_dict(
            record_store.read(clients.records, name) or requested.to_dict()
        )
    key = f"{countdown(requested.since)}_{requested.id}"
    shown = {_STATUS: json.dumps(requested.to_dict())}
    clients.records.upload_blob(_FOLDER + key, b"", overwrite=True, metadata=shown)


def list_rollouts(
    clients: Clients, *, pipeline: str | None, after: str | None, limit: int
) -> RolloutPage:
    """Read one page; `after` is `following` of the page before."""
    entries = list_entries(
        clients.records,
        _FOLDER,
        metadata=_STATUS,
        first=after or "",
        after=after,
        page_size=limit + 1,
    )
    wanted = (
        (key, document) for key, document in entries if pipeline in (None, document["pipeline"])
    )
    found, following = first_page(wanted, limit)
    return RolloutPage([RolloutStatus.from_dict(document) for document in found], following)


def asked_at(clients: Clients, rollout: str) -> datetime | None:
    """When a rollout was requested, if that was recorded."""
    asked = record_store.read(clients.records, f"rollouts/{rollout}/asked.json")
    return None if asked is None else RolloutStatus.from_dict(asked).since


def record_outcome(clients: Clients, rollout: str, outcome: RolloutOutcome) -> None:
    """Record the outcome of a rollout, because its instance may be purged later."""
    record_store.replace(clients.records, _outcome(rollout), outcome)


def recorded_end(clients: Clients, rollout: str) -> RolloutState | None:
    """The state in which a rollout ended, if that was recorded."""
    outcome: RolloutOutcome | None = record_store.read(clients.records, _outcome(rollout))
    return None if outcome is None else end_of(outcome)


def _outcome(rollout: str) -> str:
    return f"rollouts/{rollout}/outcome.json"


def record_traffic(
    clients: Clients, rollout: str, traffic: EndpointTraffic, *, at: datetime
) -> None:
    """Record that a rollout has set its endpoint's traffic; the first record of each counts."""
    document = traffic.to_dict()
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]
    name = f"rollouts/{rollout}/traffic/{digest}.json"
    record_store.create(clients.records, name, document | {"at": at.isoformat()})


def read_traffic_changes(clients: Clients, rollout: str) -> list[tuple[datetime, Traffic]]:
    """When a rollout has set its endpoint's traffic, and to what; the oldest first."""
    found = record_store.read_all(clients.records, f"rollouts/{rollout}/traffic/")
    return sorted(
        ((datetime.fromisoformat(each["at"]), each["traffic"]) for each in found),
        key=lambda each: each[0],
    )


def record_step(clients: Clients, rollout: str, step: str | int, began_at: datetime) -> None:
    """Record the start of a step.

    `step` is `deploying`, `testing`, an index in `deploy.steps`, or `live`.
    """
    name = f"{_folder(rollout)}{step}.json"
    if name not in clients.rollout_steps:
        record_store.create(clients.records, name, began_at.isoformat())
        clients.rollout_steps.add(name)


def read_steps(clients: Clients, rollout: str) -> Mapping[str, datetime]:
    """Recorded step → its start."""
    folder = _folder(rollout)
    return {
        name.removeprefix(folder).removesuffix(".json"): datetime.fromisoformat(
            record_store.read(clients.records, name) or ""
        )
        for name in clients.records.list_blob_names(name_starts_with=folder)
    }


def trial_time(clients: Clients, rollout: str, end: RolloutState | None) -> timedelta | None:
    """The time from the creation of its deployment until it was live or ended, if both are known.

    The end of a rollout that was never live is when its outcome was recorded; `end` is that of
    `recorded_end`.
    """
    steps = read_steps(clients, rollout)
    began_at, ended_at = steps.get("deploying"), steps.get("live")
    if ended_at is None and end not in (None, "finished"):
        for outcome in clients.records.list_blobs(name_starts_with=_outcome(rollout)):
            ended_at = outcome.last_modified
    if began_at is None or ended_at is None:
        return None
    return max(ended_at - began_at, timedelta())  # the clocks of two services can differ


def _folder(rollout: str) -> str:
    return f"rollouts/{rollout}/steps/"
