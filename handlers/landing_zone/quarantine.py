"""The files that a trainer refused: left out of manifests until they are written again."""

from __future__ import annotations

from collections.abc import Mapping

from handlers.azure_ml.job_outputs import read_bad_files
from handlers.configuration import record_store
from handlers.configuration.clients import Clients
from handlers.durable.activity_adapter import activity
from handlers.landing_zone.manifests import read_lines_of
from orchestrations.contracts.base import Done
from orchestrations.contracts.datasets import Dataset, QuarantineFiles


@activity
def quarantine_files(clients: Clients, request: QuarantineFiles) -> Done:
    """Leave the files that the run's error.json names out of every later manifest.

    By path and ETag: a file that is mended, by writing it again, is taken again.
    """
    reasons = read_bad_files(clients, request.run)
    keep_quarantine(clients, request.pipeline, request.run, request.run, request.dataset, reasons)
    return Done()


def keep_quarantine(
    clients: Clients,
    pipeline: str,
    record: str,
    run: str,
    dataset: Dataset,
    reasons: Mapping[str, str],
) -> None:
    """Leave files of a dataset, which a run was to train on, out until they are written again.

    `record` names the record; `reasons` has path in the manifest → why.
    """
    entries = [
        {
            "path": line.path,
            "etag": line.etag or line.md5,  # an uploader's manifest may have no ETags
            "reason": reasons[line.path],
            "run": run,
        }
        for line in read_lines_of(clients, dataset, reasons)
    ]
    record_store.replace(clients.records, f"quarantine/{pipeline}/{record}.json", entries)


def read_quarantine(clients: Clients, pipeline: str) -> dict[tuple[str, str], str]:
    """(path, ETag) of every file left out, and why."""
    return {
        (entry["path"], entry["etag"]): f"{entry['reason']} (run {entry['run']})"
        for entries in record_store.read_all(clients.records, f"quarantine/{pipeline}/")
        for entry in entries
    }
