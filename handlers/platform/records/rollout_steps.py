"""Start times of a rollout's steps, which its activities record for the spans of its trace.

Each is written once; a repeated activity changes nothing. A process tries the write once per step,
however often it observes the rollout.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from handlers.platform import record_store
from handlers.platform.clients import Clients


def record_step(clients: Clients, rollout: str, step: str | int, began_at: datetime) -> None:
    """Record the start of a step, if traces are sent.

    `step` is `deploying`, `testing`, or an index in `deploy.steps`.
    """
    name = f"{_folder(rollout)}{step}.json"
    if clients.telemetry.is_on and name not in clients.rollout_steps:
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


def _folder(rollout: str) -> str:
    return f"rollouts/{rollout}/steps/"
