"""The files that a trainer refused: left out of manifests until they are written again."""

from __future__ import annotations

from handlers.azure_ml.job_outputs import read_bad_files
from handlers.configuration import record_store
from handlers.configuration.clients import Clients
from handlers.durable.activity_adapter import activity
from handlers.landing_zone.manifests import read_lines_of
from orchestrations.contracts.base import Done
from orchestrations.contracts.datasets import QuarantineFiles


@activity
def quarantine_files(clients: Clients, request: QuarantineFiles) -> Done:
    """Leave the files that the run's error.json names out of every later manifest.

    By path and ETag: a file that is mended, by writing it again, is taken again.
    """
    reasons = read_bad_files(clients, request.run)
    entries = [
        {
            "path": line.path,
            "etag": line.etag or line.md5,  # an uploader's manifest may have no ETags
            "reason": reasons[line.path],
            "run": request.run,
        }
        for line in read_lines_of(clients, request.dataset, reasons)
    ]
    record_store.replace(
        clients.records, f"quarantine/{request.pipeline}/{request.run}.json", entries
    )
    return Done()


def read_quarantine(clients: Clients, pipeline: str) -> dict[tuple[str, str], str]:
    """(path, ETag) of every file left out, and why."""
    return {
        (entry["path"], entry["etag"]): f"{entry['reason']} (run {entry['run']})"
        for entries in record_store.read_all(clients.records, f"quarantine/{pipeline}/")
        for entry in entries
    }
