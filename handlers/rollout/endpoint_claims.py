"""Activities `claim_endpoint` and `release_endpoint`: one rollout per endpoint at a time.

The record of an endpoint names the rollout that holds it, and the newest rollout that claimed it. A
rollout that is not the newest ends, so the newest waits only until the holder has restored the
traffic. A rollout that a person started becomes the newest whatever its model's version, and
rollouts that runs start wait until it is live. If the instance of either was terminated,
reconciliation releases the endpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from handlers.platform import record_store
from handlers.platform.activity_adapter import activity
from handlers.platform.clients import Clients
from handlers.platform.rollout_index import record_outcome
from orchestrations.contracts.base import Contract, Done
from orchestrations.contracts.rollouts import ClaimEndpoint, EndpointClaim, ReleaseEndpoint

PREFIX = "rollouts/claims/"


class _Claim(Contract):
    """The record of an endpoint's claims."""

    holder: str | None = None
    newest: str
    newest_version: int
    """The greatest version that was ever rolled out."""
    requests: int = Field(default=0, exclude_if=lambda it: it == 0)
    """How many rollouts people started."""
    pending: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """The rollout that a person started last, until it is live or has ended."""


@activity
def claim_endpoint(clients: Clients, request: ClaimEndpoint) -> EndpointClaim:
    """Claim the endpoint, unless another rollout holds it. Idempotent."""
    answer = EndpointClaim(granted=False)

    def change(before: Any | None) -> Any | None:
        nonlocal answer
        claim = _Claim.from_dict(before) if before else None
        if claim is None:
            claim = _Claim(newest=request.rollout, newest_version=request.version)
        is_newer = request.version > claim.newest_version
        if is_newer and claim.pending is None:
            changes = {"newest": request.rollout, "newest_version": request.version}
            claim = claim.model_copy(update=changes)
        if claim.newest != request.rollout:
            by = None if is_newer else claim.newest
            answer = EndpointClaim(granted=False, holder=claim.pending, superseded_by=by)
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
    """Record the rollout's outcome, and release the endpoint if this rollout holds it."""
    record_outcome(clients, request.rollout, request.outcome)
    release(clients, request.endpoint, request.rollout)
    return Done()


def release(clients: Clients, endpoint: str, rollout: str) -> None:
    """Release the endpoint, if the rollout holds it or other rollouts wait for it."""
    _forget(clients, endpoint, rollout, "holder", "pending")


def admit_newer(clients: Clients, endpoint: str, rollout: str) -> None:
    """A rollout that a person started is live: a newer model may be rolled out from now on."""
    _forget(clients, endpoint, rollout, "pending")


def register(clients: Clients, endpoint: str, rollout: str, *, version: int, attempt: int) -> None:
    """Make a rollout that a person started the newest one. Idempotent.

    Of two with the same number, the first one counts: the second is superseded by it.
    """

    def change(before: Any | None) -> Any | None:
        claim = _Claim.from_dict(before) if before else None
        if claim is not None and claim.requests >= attempt:
            return None
        return _Claim(
            holder=None if claim is None else claim.holder,
            newest=rollout,
            newest_version=max(version, 0 if claim is None else claim.newest_version),
            requests=attempt,
            pending=rollout,
        ).to_dict()

    record_store.update(clients.records, _record(endpoint), change, lambda _: {})


def newest_rollout(clients: Clients, endpoint: str) -> tuple[str | None, int]:
    """The newest rollout of an endpoint, and how many rollouts people have started."""
    document = record_store.read(clients.records, _record(endpoint))
    if document is None:
        return None, 0
    claim = _Claim.from_dict(document)
    return claim.newest, claim.requests


def _forget(clients: Clients, endpoint: str, rollout: str, *fields: str) -> None:
    """Empty the fields of an endpoint's record that name the rollout."""

    def change(before: Any | None) -> Any | None:
        claim = _Claim.from_dict(before) if before else None
        named = [each for each in fields if getattr(claim, each, None) == rollout]
        if claim is None or not named:
            return None
        return claim.model_copy(update=dict.fromkeys(named)).to_dict()

    record_store.update(clients.records, _record(endpoint), change, lambda _: {})


def superseding_rollout(clients: Clients, endpoint: str, rollout: str) -> str | None:
    """The rollout of a newer model for the endpoint, if there is one."""
    document = record_store.read(clients.records, _record(endpoint))
    newest = rollout if document is None else _Claim.from_dict(document).newest
    return None if newest == rollout else newest


def holders(clients: Clients) -> Iterator[tuple[str, str]]:
    """Every claimed endpoint, with the rollouts that others wait for: the holder, a person's."""
    for name in sorted(clients.records.list_blob_names(name_starts_with=PREFIX)):
        document = record_store.read(clients.records, name)
        claim = None if document is None else _Claim.from_dict(document)
        endpoint = name.removeprefix(PREFIX).removesuffix(".json")
        for rollout in () if claim is None else dict.fromkeys((claim.holder, claim.pending)):
            if rollout is not None:
                yield endpoint, rollout


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
