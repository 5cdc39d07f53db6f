"""Activities `claim_endpoint` and `release_endpoint`: one rollout per endpoint at a time.

The record of an endpoint names the rollout that holds it, and the newest rollout that claimed it. A
rollout that is not the newest ends, so the newest waits only until the holder has restored the
traffic. If the holder's instance was terminated, reconciliation releases the endpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from handlers.configuration import record_store
from handlers.configuration.clients import Clients
from handlers.durable.activity_adapter import activity
from orchestrations.contracts.base import Contract, Done
from orchestrations.contracts.rollouts import ClaimEndpoint, EndpointClaim, ReleaseEndpoint

PREFIX = "rollouts/claims/"


class _Claim(Contract):
    """The record of an endpoint's claims."""

    holder: str | None = None
    newest: str
    newest_version: int


@activity
def claim_endpoint(clients: Clients, request: ClaimEndpoint) -> EndpointClaim:
    """Claim the endpoint, unless another rollout holds it. Idempotent."""
    answer = EndpointClaim(granted=False)

    def change(before: Any | None) -> Any | None:
        nonlocal answer
        claim = _Claim.from_dict(before) if before else None
        if claim is None or request.version > claim.newest_version:
            holder = None if claim is None else claim.holder
            claim = _Claim(holder=holder, newest=request.rollout, newest_version=request.version)
        if claim.newest != request.rollout:
            answer = EndpointClaim(granted=False, superseded_by=claim.newest)
            return None
        granted = claim.holder in (None, request.rollout)
        answer = EndpointClaim(granted=granted, holder=None if granted else claim.holder)
        if granted:
            claim = claim.model_copy(update={"holder": request.rollout})
        after = claim.to_dict()
        return None if after == before else after

    record_store.update(clients.records, _record(request.endpoint), change, lambda _: {})
    return answer


@activity
def release_endpoint(clients: Clients, request: ReleaseEndpoint) -> Done:
    """Release the endpoint, if this rollout holds it."""
    release(clients, request.endpoint, request.rollout)
    return Done()


def release(clients: Clients, endpoint: str, rollout: str) -> None:
    """Release the endpoint, if the rollout holds it."""

    def change(before: Any | None) -> Any | None:
        claim = _Claim.from_dict(before) if before else None
        if claim is None or claim.holder != rollout:
            return None
        return claim.model_copy(update={"holder": None}).to_dict()

    record_store.update(clients.records, _record(endpoint), change, lambda _: {})


def superseding_rollout(clients: Clients, endpoint: str, rollout: str) -> str | None:
    """The rollout of a newer model for the endpoint, if there is one."""
    document = record_store.read(clients.records, _record(endpoint))
    newest = rollout if document is None else _Claim.from_dict(document).newest
    return None if newest == rollout else newest


def holders(clients: Clients) -> Iterator[tuple[str, str]]:
    """Every claimed endpoint, with the rollout that holds it."""
    for name in sorted(clients.records.list_blob_names(name_starts_with=PREFIX)):
        document = record_store.read(clients.records, name)
        holder = None if document is None else _Claim.from_dict(document).holder
        if holder is not None:
            yield name.removeprefix(PREFIX).removesuffix(".json"), holder


def claimants(clients: Clients) -> Iterator[str]:
    """The rollouts that hold an endpoint, and the newest one of each endpoint."""
    for document in record_store.read_all(clients.records, PREFIX):
        claim = _Claim.from_dict(document)
        yield claim.newest
        if claim.holder is not None:
            yield claim.holder


def holder_of(clients: Clients, endpoint: str) -> str | None:
    """The rollout that holds the endpoint, if there is one."""
    document = record_store.read(clients.records, _record(endpoint))
    return None if document is None else _Claim.from_dict(document).holder


def _record(endpoint: str) -> str:
    return f"{PREFIX}{endpoint}.json"
