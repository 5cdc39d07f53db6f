"""Requests to cancel a run: the records `runs/<run>/cancel`.

A run that misses the event of its cancellation finds the record before its next effect.
"""

from __future__ import annotations

from handlers.platform import record_store
from handlers.platform.clients import Clients
from orchestrations.contracts.runs import CancelRequest


def request_cancel(clients: Clients, run: str, request: CancelRequest) -> None:
    """Record a request to cancel a run. Only the first request counts."""
    record_store.create(clients.records, _name(run), request.to_dict())


def read_cancel_request(clients: Clients, run: str) -> CancelRequest | None:
    """The request to cancel a run; None if there is none, or its model may be registered."""
    document = record_store.read(clients.records, _name(run))
    if document is None or record_store.read(clients.records, _registering(run)) is not None:
        return None
    return CancelRequest.from_dict(document)


def end_cancellation(clients: Clients, run: str) -> None:
    """Record that a run registers its model: from now on, it is too late to cancel it.

    A registration can take effect without an answer. The run that then ended as cancelled would
    leave its model as the champion.
    """
    record_store.create(clients.records, _registering(run), {})


def _name(run: str) -> str:
    return f"runs/{run}/cancel"


def _registering(run: str) -> str:
    return f"runs/{run}/registering"
