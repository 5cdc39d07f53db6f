"""Removes what is older than its retention and not in use: a bounded step of reconciliation.

A pass over all kinds begins once a day and goes on in the next rounds until it is complete. Its
record says how far it is; if the process dies, what it did since the last round is repeated. A blob
is deleted only if it is still as it was listed.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import ResourceModifiedError, ResourceNotFoundError
from azure.durable_functions import DurableOrchestrationClient, OrchestrationRuntimeStatus

from handlers.operate.retention_kinds import (
    COPIES,
    INSTANCES,
    KINDS,
    RECORDS,
    InUse,
    Kind,
    read_uses,
)
from handlers.platform import record_store
from handlers.platform.clients import Clients
from handlers.platform.settings import Settings
from orchestrations.configuration.pipeline import Pipeline

if TYPE_CHECKING:
    from azure.storage.blob import BlobProperties, ContainerClient

INTERVAL = timedelta(days=1)
STEP_SECONDS = 60.0
# One page of a listing.
PIECE_BLOBS = 5000
DELETIONS_AT_ONCE = 16
# So long after the copies of a batch become unneeded, `copy_retention` sees that they may be.
DAYS_AFTER_COPIES = 7
PURGE_SECONDS = 60.0
ENDED = (
    OrchestrationRuntimeStatus.Completed,
    OrchestrationRuntimeStatus.Failed,
    OrchestrationRuntimeStatus.Terminated,
)
RECORD = "retention/pass.json"
# The durable API requires the beginning of the span; no instance is older.
_FIRST_INSTANCE = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class _Pass:
    """The progress of a pass."""

    began_at: str
    """ISO 8601, UTC."""
    kind: int = 0
    """The number of kinds that are done."""
    after: str = ""
    """The last blob of this kind that was looked at."""

    @property
    def is_over(self) -> bool:
        return self.kind == len(KINDS)


def begin_pass(clients: Clients, *, now: datetime) -> bool:
    """Begin a pass, if one is due; return whether one began."""
    under_way = _read(clients)
    if under_way is not None:
        is_recent = now - datetime.fromisoformat(under_way.began_at) < INTERVAL
        if is_recent or not under_way.is_over:
            return False
    record_store.replace(clients.records, RECORD, asdict(_Pass(began_at=now.isoformat())))
    return True


async def purge_instances(
    clients: Clients, starter: DurableOrchestrationClient, *, now: datetime
) -> int:
    """Purge the ended instances that were created longer ago than they are kept.

    Returns their number. The task hub reads all instances for it, so once a day is enough.

    Raises:
        TimeoutError: it took longer than `PURGE_SECONDS`. What is left is purged the next day.
    """
    days = timedelta(days=clients.settings.keep_days(INSTANCES))
    async with asyncio.timeout(PURGE_SECONDS):
        result = await starter.purge_instance_history_by(
            created_time_from=_FIRST_INSTANCE,
            created_time_to=now - days,
            runtime_status=list(ENDED),
        )
    return int(result.instances_deleted)


def remove_old_records(
    clients: Clients,
    pipelines: Mapping[str, Pipeline],
    *,
    now: datetime,
    monotonic: Callable[[], float],
) -> int:
    """Do the next pieces of the pass for about `STEP_SECONDS`; return the number of deletions."""
    under_way = _read(clients)
    if under_way is None or under_way.is_over:
        return 0
    deadline = monotonic() + STEP_SECONDS
    in_use = read_uses(clients, pipelines, now - _kept(clients.settings, RECORDS))
    deleted = 0
    try:
        while not under_way.is_over and monotonic() < deadline:
            kind = KINDS[under_way.kind]
            before = now - _kept(clients.settings, kind.setting)
            container = _container(clients, kind)
            subjects, last = _next_subjects(container, kind, under_way.after)
            deleted += _delete(container, kind, subjects, before, in_use)
            if last is None:
                under_way = replace(under_way, kind=under_way.kind + 1, after="")
            else:
                under_way = replace(under_way, after=last)
    finally:
        record_store.replace(clients.records, RECORD, asdict(under_way))
    return deleted


def _read(clients: Clients) -> _Pass | None:
    document = record_store.read(clients.records, RECORD)
    return None if document is None else _Pass(**document)


def _kept(settings: Settings, name: str) -> timedelta:
    days = settings.keep_days(name)
    if name == RECORDS:  # `copy_retention` needs the records of every version that it keeps
        days = max(days, settings.keep_days(COPIES) + DAYS_AFTER_COPIES)
    return timedelta(days=days)


def _container(clients: Clients, kind: Kind) -> ContainerClient:
    if kind.place == "records":
        return clients.records
    name = str(clients.default_datastore.container_name)
    return clients.workspace_blobs.get_container_client(name)


def _next_subjects(
    container: ContainerClient, kind: Kind, after: str
) -> tuple[dict[str, list[BlobProperties]], str | None]:
    """The next subjects with their blobs, about `PIECE_BLOBS` in all.

    Also returns the name of the last blob, or None if no subject follows.
    """
    subjects: dict[str, list[BlobProperties]] = {}
    blobs, last = 0, after
    listed = _listed(container, kind.prefix, after)
    for subject, group in itertools.groupby(listed, key=lambda blob: kind.subject(blob.name)):
        if blobs >= PIECE_BLOBS:
            return subjects, last
        subjects[subject] = list(group)
        blobs += len(subjects[subject])
        last = str(subjects[subject][-1].name)
    return subjects, None


def _listed(container: ContainerClient, prefix: str, after: str) -> Iterator[BlobProperties]:
    # A service without `start_from` ignores it, so earlier blobs are skipped below.
    start: dict[str, Any] = {"start_from": after} if after else {}
    return (
        blob for blob in container.list_blobs(name_starts_with=prefix, **start) if blob.name > after
    )


def _delete(
    container: ContainerClient,
    kind: Kind,
    subjects: Mapping[str, list[BlobProperties]],
    before: datetime,
    in_use: InUse,
) -> int:
    unneeded = [
        blobs
        for subject, blobs in subjects.items()
        if max(blob.last_modified for blob in blobs) < before and kind.removes(subject, in_use)
    ]

    def delete(blobs: list[BlobProperties]) -> int:
        # The last blob completes a subject (a manifest), so it goes first: the rest is no subject.
        for number, blob in enumerate(reversed(blobs)):
            try:
                container.delete_blob(blob.name, **record_store.unchanged(blob.etag))
            except ResourceModifiedError:
                return number  # it was written meanwhile
            except ResourceNotFoundError:
                continue
        return len(blobs)

    with ThreadPoolExecutor(DELETIONS_AT_ONCE) as pool:
        return sum(pool.map(delete, unneeded))
