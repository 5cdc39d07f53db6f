"""The record of a run's results: its metrics in full, or the trainer's error in full."""

from __future__ import annotations

from typing import Any

from handlers.platform import record_store
from handlers.platform.clients import Clients
from orchestrations.names import results_record


def read_metrics(clients: Clients, record: str) -> dict[str, float]:
    """All metrics of a run, from the record that `read_results` wrote."""
    return _read_record(clients, record)["metrics"]


def read_bad_files(clients: Clients, run: str) -> dict[str, str]:
    """The files that a run's trainer refused: path in the manifest → reason.

    From the record that `read_results` wrote.
    """
    error = _read_record(clients, results_record(run))["error"]
    return {} if error is None else {each["path"]: each["reason"] for each in error["files"]}


def _read_record(clients: Clients, record: str) -> dict[str, Any]:
    document = record_store.read(clients.records, record)
    assert document is not None, f"{record} is written before it is read, and never deleted"
    return document
