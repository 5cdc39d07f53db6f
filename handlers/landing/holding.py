"""Batches that are held, for a person or while their pipeline is paused; the comparison for it.

A zone or partition has one hold at a time: batches that are held for the same reason, one after
another, are counted in its record. The hold ends when a batch of the zone is not held, or when a
person releases it; the next held batch begins another hold.

`paused/<pipeline>.json` is the record of a pause. A resumption marks it, then lists each zone with
a held batch again. Reconciliation completes an interrupted resumption.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict

from handlers.landing.batch_records import (
    delete_record,
    hold_name,
    list_last_batches,
    read_hold,
    read_holds,
)
from handlers.landing.zone_troubles import close_troubles
from handlers.platform import record_store
from handlers.platform.activity_adapter import activity
from handlers.platform.clients import Clients
from handlers.platform.manifests import delete_manifest
from handlers.platform.run_records import read_claim
from orchestrations.contracts.base import Done
from orchestrations.contracts.holds import rule_of_hold
from orchestrations.contracts.landing import (
    HeldBatch,
    HoldBatch,
    SupersededBatch,
)
from orchestrations.names import claim_record

SUPERSEDED_KEPT = timedelta(minutes=5)
"""How long the manifest of a superseded batch is kept. A request's landing that freezes the same
content meanwhile uses this manifest, and claims it before that."""
_FOLDER = "paused/"


@activity
def hold_batch(clients: Clients, request: HoldBatch) -> Done:
    """Record a batch that is held until a person releases it.

    A zone has one hold: a batch that is held for the same reason as the one before is counted in
    its record. The manifest of the earlier batch is deleted some minutes later.
    """
    pipeline, dataset = request.pipeline, request.dataset
    name = hold_name(pipeline, dataset.partition)
    before = read_hold(clients, name)
    outdated: list[SupersededBatch] = []
    if before is not None:
        latest = dataset.frozen_at - SUPERSEDED_KEPT
        outdated = [each for each in before.superseded if each.frozen_at < latest]
        for each in outdated:
            if each.version != dataset.version:
                _discard(clients, pipeline, each)

    def hold(document: Any | None) -> Any:
        held = None if document is None else HeldBatch.from_dict(document)
        if held is not None and held.dataset.frozen_at > dataset.frozen_at:
            return None  # a check took longer than the next batch
        return follow(held, request, without=outdated).to_dict()

    record_store.update(clients.records, name, hold)
    return Done()


def follow(
    before: HeldBatch | None, request: HoldBatch, *, without: Collection[SupersededBatch] = ()
) -> HeldBatch:
    """The record of a zone's hold after one more held batch. Pure.

    Args:
        before: the record, if there is one; it may be of a hold that has ended.
        request: the batch; the same one again changes nothing.
        without: superseded batches whose manifests are deleted.
    """
    dataset = request.dataset
    held = HeldBatch(
        pipeline=request.pipeline,
        batch=request.batch,
        dataset=dataset,
        reason=request.reason,
        message=request.message,
        since=dataset.frozen_at,
    )
    if before is None:
        return held
    superseded = [each for each in before.superseded if each not in without]
    is_repeated = before.batch == request.batch
    if not is_repeated:
        superseded.append(
            SupersededBatch(
                batch=before.batch,
                version=before.dataset.version,
                frozen_at=before.dataset.frozen_at,
            )
        )
    held = held.model_copy(
        update={"superseded": tuple(e for e in superseded if e.version != dataset.version)}
    )
    if before.is_released or before.reason != request.reason:
        return held
    return held.model_copy(
        update={
            "since": before.since or before.dataset.frozen_at,
            "count": before.count + (not is_repeated),
        }
    )


def release_held_batch(clients: Clients, pipeline: str, version: str, why: str) -> HeldBatch | None:
    """Release a hold: its newest batch is trained on when its content is next frozen.

    `version` is the newest batch, or one that it has superseded in the last minutes. Returns the
    record, whose `dataset` is what was released; None if there is no such hold.
    """
    for name, found in read_holds(clients, pipeline):
        held: HeldBatch | None = found
        while held is not None and version in (
            held.dataset.version,
            *(each.version for each in held.superseded),
        ):
            # First: if the process dies before the hold is marked, the batch is released, too.
            release = _release(pipeline, held.dataset.version)
            record_store.create(clients.records, release, {"reason": why})
            marked = _mark_released(clients, name, held.dataset.version)
            if marked is not None:
                close_troubles(
                    clients,
                    pipeline,
                    marked.dataset.partition,
                    until=datetime.max.replace(tzinfo=UTC),
                    kinds=("batch-held",),
                )
                return marked
            held = read_hold(clients, name)  # a newer batch was held meanwhile
    return None


def _mark_released(clients: Clients, name: str, version: str) -> HeldBatch | None:
    """Mark a hold as released, if its newest batch is still of this version."""
    marked: list[HeldBatch] = []

    def mark(document: Any | None) -> Any | None:
        marked.clear()
        held = None if document is None else HeldBatch.from_dict(document)
        if held is None or held.dataset.version != version:
            return None
        marked.append(held.model_copy(update={"is_released": True}))
        return marked[0].to_dict()

    record_store.update(clients.records, name, mark)
    return marked[0] if marked else None


def has_released_hold(clients: Clients, pipeline: str, partition: str | None) -> bool:
    """Whether the held batch of a zone or partition is released: the next one ends its hold."""
    held = read_hold(clients, hold_name(pipeline, partition))
    return held is not None and is_released(clients, pipeline, held.dataset.version)


def released_zones(clients: Clients, pipeline: str) -> Sequence[str | None]:
    """The zones or partitions with a released hold, in order."""
    holds = (held.dataset for _, held in read_holds(clients, pipeline))
    released = (it.partition for it in holds if is_released(clients, pipeline, it.version))
    return sorted(released, key=str)


def is_released(clients: Clients, pipeline: str, version: str) -> bool:
    """Whether a person has released the batch of a dataset version."""
    return record_store.read(clients.records, _release(pipeline, version)) is not None


def _discard(clients: Clients, pipeline: str, batch: SupersededBatch) -> None:
    """Delete the manifest and the record of a superseded batch, unless something refers to them."""
    name = claim_record(pipeline, batch.version)
    is_claimed = read_claim(clients, name) is not None
    if not is_claimed and not is_released(clients, pipeline, batch.version):
        delete_manifest(clients, pipeline, batch.version)
        delete_record(clients, pipeline, batch.batch, batch.frozen_at)


def _release(pipeline: str, version: str) -> str:
    return f"released/{pipeline}/{version}.json"


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
        pause = _parse(document)
        if pause is None or pause.resumed_at is not None:
            return None
        ended[:] = [pause.model_copy(update={"resumed_at": at})]
        return ended[0].model_dump(mode="json")

    record_store.update(clients.records, _name(pipeline), end)
    return ended[0] if ended else None


def zones_to_resume(clients: Clients, pipeline: str) -> Sequence[str | None]:
    """The zones or partitions that held a batch for the pause and were not listed since its end.

    Deletes the held batches of zones that were listed since, and the record of the pause when no
    zone is left.
    """
    pause = _read(clients, pipeline)
    if pause is None or pause.resumed_at is None:
        return []
    listed = list_last_batches(clients).get(pipeline, {})
    left: set[str | None] = set()
    for name, held in _held_for_pause(clients, pipeline):
        partition = held.dataset.partition
        last = listed.get(partition)
        if last is not None and last.listed_from > pause.resumed_at:
            record_store.delete(clients.records, name, unless=_is_held_otherwise)
        else:
            left.add(partition)
    if not left:
        record_store.delete(clients.records, _name(pipeline), unless=_is_in_force)
    return sorted(left, key=str)


def _held_for_pause(clients: Clients, pipeline: str) -> Iterator[tuple[str, HeldBatch]]:
    for name, held in read_holds(clients, pipeline):
        if rule_of_hold(held.reason).ended_by == "resumption":
            yield name, held


def _is_in_force(document: Any) -> bool:
    pause = _parse(document)
    return pause is not None and pause.resumed_at is None


def _is_held_otherwise(document: Any) -> bool:
    return rule_of_hold(HeldBatch.from_dict(document).reason).ended_by != "resumption"


def _read(clients: Clients, pipeline: str) -> Pause | None:
    return _parse(record_store.read(clients.records, _name(pipeline)))


def _parse(document: Any | None) -> Pause | None:
    return None if document is None else Pause.model_validate(document)


def _name(pipeline: str) -> str:
    return f"{_FOLDER}{pipeline}.json"
