"""Dataset claims: the idempotency record of each dataset version. Kept for ever."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from azure.core.exceptions import AzureError

from handlers.configuration import record_store
from handlers.configuration.clients import Clients
from handlers.durable.activity_adapter import activity
from handlers.landing_zone.batch_records import last_batch
from handlers.runs.run_records import add_to_record, read_run_record
from orchestrations.contracts.datasets import CheckSuperseded, Dataset, Superseded
from orchestrations.contracts.landing import ClaimDataset, DatasetClaim
from orchestrations.contracts.runs import RunRequest
from orchestrations.names import run_id

if TYPE_CHECKING:
    from azure.storage.blob import BlobProperties


@dataclass(frozen=True, kw_only=True)
class ClaimedRun:
    """A claim with all that is needed to start its run."""

    claim: DatasetClaim
    request: RunRequest


def _name(pipeline: str, version: str) -> str:
    return f"dataset-claims/{pipeline}/{version}.json"


@activity
def claim_dataset(clients: Clients, request: ClaimDataset) -> DatasetClaim:
    """Claim a dataset version, or learn whose it is. The answer never changes afterwards."""
    claim = DatasetClaim(run=request.run, batch=request.batch)
    document = {"claim": claim.to_dict(), "request": request.request.to_dict()}
    dataset = request.request.dataset
    name = _name(request.request.pipeline.name, dataset.version)
    metadata = {"run": request.run, "frozen_at": dataset.frozen_at.isoformat()}
    if dataset.partition is not None:
        metadata["partition"] = dataset.partition
    if record_store.create(clients.records, name, document, metadata):
        _link_follower(clients, request)
        return claim
    # Ours, if an earlier try of this very activity got as far as here.
    kept = record_store.read(clients.records, name)
    assert kept is not None, f"claims are never deleted, but {name} was"
    return DatasetClaim.from_dict(kept["claim"])


def _link_follower(clients: Clients, request: ClaimDataset) -> None:
    """A run whose data was overwritten is superseded by the run of the zone's next batch.

    Nothing is decided by the link: no step fails for it.
    """
    pipeline, dataset = request.request.pipeline.name, request.request.dataset
    with contextlib.suppress(AzureError):
        last = last_batch(clients, pipeline, dataset.partition)
        if last is None or last.dataset.version == dataset.version:
            return
        record = read_run_record(clients, run_id(pipeline, last.dataset.version, 1))
        if record is not None and record.status.state == "superseded":
            add_to_record(clients, record.model_copy(update={"superseded_by": request.run}))


@activity
def check_superseded(clients: Clients, request: CheckSuperseded) -> Superseded:
    """Whether a later dataset of the same zone or partition was claimed: then no retry is made."""
    claims = (
        each
        for each in _list(clients, request.pipeline)
        if each.metadata.get("partition") == request.dataset.partition
    )
    newest = max(claims, key=_frozen_at, default=None)
    if newest is None or _frozen_at(newest) <= request.dataset.frozen_at:
        return Superseded(by=None)
    return Superseded(by=newest.metadata["run"])


def find_claim(clients: Clients, pipeline: str, version: str) -> DatasetClaim | None:
    """The claim on a dataset version, if there is one."""
    document = record_store.read(clients.records, _name(pipeline, version))
    return None if document is None else DatasetClaim.from_dict(document["claim"])


def claimed_dataset(clients: Clients, pipeline: str, version: str) -> Dataset | None:
    """The dataset of that version, if it was ever claimed."""
    document = record_store.read(clients.records, _name(pipeline, version))
    return None if document is None else RunRequest.from_dict(document["request"]).dataset


def list_claims(clients: Clients, pipeline: str, *, frozen_after: datetime) -> Sequence[str]:
    """The names of a pipeline's claims on datasets that were frozen after a moment."""
    return [each.name for each in _list(clients, pipeline) if _frozen_at(each) > frozen_after]


def read_claim(clients: Clients, name: str) -> ClaimedRun:
    """The claim of that name, with its request.

    Raises:
        pydantic.ValidationError: it is of a schema that this release does not know.
    """
    document = record_store.read(clients.records, name)
    assert document is not None, f"claims are never deleted, but {name} was"
    return ClaimedRun(
        claim=DatasetClaim.from_dict(document["claim"]),
        request=RunRequest.from_dict(document["request"]),
    )


def _list(clients: Clients, pipeline: str) -> Iterator[BlobProperties]:
    return clients.records.list_blobs(
        name_starts_with=f"dataset-claims/{pipeline}/", include=["metadata"]
    )


def _frozen_at(blob: BlobProperties) -> datetime:
    return datetime.fromisoformat(blob.metadata["frozen_at"])
