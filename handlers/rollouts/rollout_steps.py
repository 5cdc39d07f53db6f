"""When the steps of a rollout began: records that its activities leave, for the spans of its trace.

Each is written once; a repeated activity changes nothing. A process asks the records once for each
step, however often it observes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from handlers.configuration import record_store
from handlers.configuration.clients import Clients


def record_step(clients: Clients, rollout: str, step: str | int, began_at: datetime) -> None:
    """Keep when a step first began, where traces are sent at all.

    It is `deploying`, `testing`, or the number of a step of `deploy.steps`, from 0.
    """
    name = f"{_folder(rollout)}{step}.json"
    if clients.telemetry.is_on and name not in clients.rollout_steps:
        record_store.create(clients.records, name, began_at.isoformat())
        clients.rollout_steps.add(name)


def read_steps(clients: Clients, rollout: str) -> Mapping[str, datetime]:
    """When each step that was kept began."""
    folder = _folder(rollout)
    return {
        name.removeprefix(folder).removesuffix(".json"): datetime.fromisoformat(
            record_store.read(clients.records, name) or ""
        )
        for name in clients.records.list_blob_names(name_starts_with=folder)
    }


def _folder(rollout: str) -> str:
    return f"rollouts/{rollout}/steps/"
