"""Which run was the first for a dataset version. Kept for ever: instance ids may be used again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from handlers import records
from handlers.clients import Clients
from orchestrations.contracts import (
    CheckSuperseded,
    Claim,
    ClaimDataset,
    RunRequest,
    Superseded,
)


@dataclass(frozen=True, kw_only=True)
class ClaimedRun:
    """A claim with all that is needed to start its run."""

    claim: Claim
    request: RunRequest


def _name(pipeline: str, version: str) -> str:
    return f"claims/{pipeline}/{version}.json"


def claim_dataset(clients: Clients, request: ClaimDataset) -> Claim:
    """Claim a dataset version, or learn whose it is. The answer never changes afterwards."""
    claim = Claim(run=request.run, window=request.window)
    document = {"claim": claim.to_dict(), "request": request.request.to_dict()}
    dataset = request.request.dataset
    name = _name(request.request.pipeline.name, dataset.version)
    metadata = {"run": request.run, "frozen_at": dataset.frozen_at.isoformat()}
    if records.create(clients.records, name, document, metadata):
        return claim
    # Ours, if an earlier try of this very activity got as far as here.
    kept = records.read(clients.records, name)
    assert kept is not None, f"claims are never deleted, but {name} was"
    return Claim.from_dict(kept["claim"])


def check_superseded(clients: Clients, request: CheckSuperseded) -> Superseded:
    """Whether a dataset that was frozen later has been claimed: then trying again is a waste."""
    newest = (request.dataset.frozen_at, None)
    for blob in clients.records.list_blobs(
        name_starts_with=f"claims/{request.pipeline}/", include=["metadata"]
    ):
        frozen_at = datetime.fromisoformat(blob.metadata["frozen_at"])
        if frozen_at > newest[0]:
            newest = (frozen_at, blob.metadata["run"])
    return Superseded(by=newest[1])


def list_claims(clients: Clients, pipeline: str) -> Iterator[ClaimedRun]:
    """Every claim of a pipeline."""
    for document in records.read_all(clients.records, f"claims/{pipeline}/"):
        yield ClaimedRun(
            claim=Claim.from_dict(document["claim"]),
            request=RunRequest.from_dict(document["request"]),
        )
