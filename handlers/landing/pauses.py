"""Pipelines that a person has paused: their batches are frozen and held until the resumption.

`paused/<pipeline>.json` is the record. A resumption marks it, then lists each zone with a held
batch again. Reconciliation completes an interrupted resumption.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from handlers.landing.batch_records import list_last_batches
from handlers.landing.hold_records import read_holds
from handlers.platform import record_store
from handlers.platform.clients import Clients
from orchestrations.contracts.landing import HeldBatch
from orchestrations.landing.holding import HOLD_RULES

_FOLDER = "paused/"


class Pause(BaseModel):
    """A pause of a pipeline: author, reason and start."""

    model_config = ConfigDict(frozen=True)

    by: str
    reason: str
    at: datetime
    resumed_at: datetime | None = None
    """Set while zones with a held batch still have to be listed again."""

    def __str__(self) -> str:
        return f"paused by {self.by} since {self.at:%Y-%m-%d %H:%M:%S} UTC: {self.reason}"


def pause(clients: Clients, pipeline: str, made: Pause) -> Pause:
    """Pause a pipeline; return the pause in force, which may be an earlier one."""

    def begin(document: Any | None) -> Any | None:
        known = _parse(document)
        return made.model_dump(mode="json") if known is None or known.resumed_at else None

    record_store.update(clients.records, _name(pipeline), begin)
    return read_pause(clients, pipeline) or made


def read_pause(clients: Clients, pipeline: str) -> Pause | None:
    """The pause in force, if there is one."""
    known = _read(clients, pipeline)
    return None if known is None or known.resumed_at is not None else known


def read_pauses(clients: Clients) -> Mapping[str, Pause]:
    """Pipeline → the pause in force. Costs one listing, and a read per paused pipeline."""
    names = clients.records.list_blob_names(name_starts_with=_FOLDER)
    pipelines = [name.removeprefix(_FOLDER).removesuffix(".json") for name in names]
    pauses = ((pipeline, read_pause(clients, pipeline)) for pipeline in pipelines)
    return {pipeline: pause for pipeline, pause in pauses if pause is not None}


def begin_resumption(clients: Clients, pipeline: str, *, at: datetime) -> Pause | None:
    """End the pause, so that batches are trained on. None if the pipeline was not paused."""
    ended: list[Pause] = []

    def end(document: Any | None) -> Any | None:
        known = _parse(document)
        if known is None or known.resumed_at is not None:
            return None
        ended[:] = [known.model_copy(update={"resumed_at": at})]
        return ended[0].model_dump(mode="json")

    record_store.update(clients.records, _name(pipeline), end)
    return ended[0] if ended else None


def zones_to_resume(clients: Clients, pipeline: str) -> Sequence[str | None]:
    """The zones or partitions that held a batch for the pause and were not listed since its end.

    Deletes the held batches of zones that were listed since, and the record of the pause when no
    zone is left.
    """
    known = _read(clients, pipeline)
    if known is None or known.resumed_at is None:
        return []
    listed = list_last_batches(clients).get(pipeline, {})
    left: set[str | None] = set()
    for name, held in _held_for_pause(clients, pipeline):
        partition = held.dataset.partition
        last = listed.get(partition)
        if last is not None and last.listed_from > known.resumed_at:
            record_store.delete(clients.records, name, unless=_is_held_otherwise)
        else:
            left.add(partition)
    if not left:
        record_store.delete(clients.records, _name(pipeline), unless=_is_in_force)
    return sorted(left, key=str)


def _held_for_pause(clients: Clients, pipeline: str) -> Iterator[tuple[str, HeldBatch]]:
    for name, held in read_holds(clients, pipeline):
        if HOLD_RULES[held.reason].ended_by == "resumption":
            yield name, held


def _is_in_force(document: Any) -> bool:
    pause = _parse(document)
    return pause is not None and pause.resumed_at is None


def _is_held_otherwise(document: Any) -> bool:
    return HOLD_RULES[HeldBatch.from_dict(document).reason].ended_by != "resumption"


def _read(clients: Clients, pipeline: str) -> Pause | None:
    return _parse(record_store.read(clients.records, _name(pipeline)))


def _parse(document: Any | None) -> Pause | None:
    return None if document is None else Pause.model_validate(document)


def _name(pipeline: str) -> str:
    return f"{_FOLDER}{pipeline}.json"
