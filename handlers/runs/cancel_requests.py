"""Requests to cancel a run: the records `runs/<run>/cancel`.

A run that misses the event of its cancellation finds the record before its next effect.
"""

from __future__ import annotations

from handlers.configuration import record_store
from handlers.configuration.clients import Clients
from orchestrations.contracts.runs import CancelRequest


def request_cancel(clients: Clients, run: str, request: CancelRequest) -> None:
    """Record a request to cancel a run. Only the first request counts."""
    record_store.create(clients.records, _name(run), request.to_dict())


def read_cancel_request(clients: Clients, run: str) -> CancelRequest | None:
    """The request to cancel a run, if there is one."""
    document = record_store.read(clients.records, _name(run))
    return None if document is None else CancelRequest.from_dict(document)


def _name(run: str) -> str:
    return f"runs/{run}/cancel"
