"""The index of rollouts: an empty blob for each, whose name sorts and whose metadata is shown.

`rollout-index/<time>_<rollout>`; the time is counted down, so that a listing has the newest first.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from handlers.configuration import record_store
from handlers.configuration.clients import Clients
from handlers.configuration.newest_first import countdown, first_page, list_entries
from orchestrations.contracts.rollouts import RolloutOutcome, RolloutState, RolloutStatus

_FOLDER = "rollout-index/"
_STATUS = "status"
_ENDED: dict[RolloutOutcome, RolloutState] = {
    "live": "finished",
    "rolled_back": "rolled_back",
    "superseded": "superseded",
}


@dataclass(frozen=True)
class RolloutPage:
    """Some rollouts, newest first, each as it was when it was asked for."""

    rollouts: Sequence[RolloutStatus]
    following: str | None
    """Where the next page begins; None when there is none."""


def index_rollout(clients: Clients, asked: RolloutStatus) -> None:
    """Put a rollout into the index, once, however often its message is delivered."""
    name = f"rollouts/{asked.id}/asked.json"
    if not record_store.create(clients.records, name, asked.to_dict()):
        asked = RolloutStatus.from_dict(record_store.read(clients.records, name) or asked.to_dict())
    key = f"{countdown(asked.since)}_{asked.id}"
    shown = {_STATUS: json.dumps(asked.to_dict())}
    clients.records.upload_blob(_FOLDER + key, b"", overwrite=True, metadata=shown)


def list_rollouts(
    clients: Clients, *, pipeline: str | None, after: str | None, limit: int
) -> RolloutPage:
    """One page; `after` is `following` of the page before."""
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
    """When a rollout was asked for, as far as it was recorded."""
    asked = record_store.read(clients.records, f"rollouts/{rollout}/asked.json")
    return None if asked is None else RolloutStatus.from_dict(asked).since


def record_outcome(clients: Clients, rollout: str, outcome: RolloutOutcome) -> None:
    """Keep how a rollout ends: its instance may be purged one day."""
    record_store.replace(clients.records, _outcome(rollout), outcome)


def recorded_end(clients: Clients, rollout: str) -> RolloutState | None:
    """The state in which a rollout ended, as far as it was recorded."""
    outcome: RolloutOutcome | None = record_store.read(clients.records, _outcome(rollout))
    return None if outcome is None else _ENDED[outcome]


def _outcome(rollout: str) -> str:
    return f"rollouts/{rollout}/outcome.json"
