"""Batches that are held until a person releases them.

A zone or partition has one hold at a time: batches that are held for the same reason, one after
another, are counted in its record. The hold ends when a batch of the zone is not held, or when a
person releases it; the next held batch begins another hold.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

from handlers.landing.batch_records import delete_record
from handlers.landing.dataset_claims import find_claim
from handlers.landing.hold_records import hold_name, read_hold, read_holds
from handlers.landing.zone_troubles import close_troubles
from handlers.platform import record_store
from handlers.platform.activity_adapter import activity
from handlers.platform.clients import Clients
from handlers.platform.manifests import delete_manifest
from orchestrations.contracts.base import Done
from orchestrations.contracts.landing import HeldBatch, HoldBatch, SupersededBatch

SUPERSEDED_KEPT = timedelta(minutes=5)
"""How long the manifest of a superseded batch is kept. A request's landing that freezes the same
content meanwhile uses this manifest, and claims it before that."""


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
        known = None if document is None else HeldBatch.from_dict(document)
        return follow(known, request, without=outdated).to_dict()

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


def is_released(clients: Clients, pipeline: str, version: str) -> bool:
    """Whether a person has released the batch of a dataset version."""
    return record_store.read(clients.records, _release(pipeline, version)) is not None


def _discard(clients: Clients, pipeline: str, batch: SupersededBatch) -> None:
    """Delete the manifest and the record of a superseded batch, unless something refers to them."""
    if find_claim(clients, pipeline, batch.version) is None and not is_released(
        clients, pipeline, batch.version
    ):
        delete_manifest(clients, pipeline, batch.version)
        delete_record(clients, pipeline, batch.batch, batch.frozen_at)


def _release(pipeline: str, version: str) -> str:
    return f"released/{pipeline}/{version}.json"
