"""Files that a trainer refused, which manifests leave out until they are overwritten."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from urllib.parse import quote, unquote

from handlers.platform import record_store
from handlers.platform.activity_adapter import activity
from handlers.platform.clients import Clients
from handlers.platform.manifests import read_lines_of
from handlers.platform.run_records import read_bad_files
from orchestrations.contracts.base import Done
from orchestrations.contracts.datasets import Dataset, QuarantineFiles

_FOLDER = "quarantine"
_PARTITION = "partition"


@activity
def quarantine_files(clients: Clients, request: QuarantineFiles) -> Done:
    """Leave the files in the run's error.json out of every later manifest.

    Files are identified by path and ETag, so an overwritten file is included again.
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
    """Leave files of a run's dataset out of manifests until they are overwritten.

    `record` is the name of the record; `reasons` maps a path in the manifest to a reason.
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
    metadata = {} if dataset.partition is None else {_PARTITION: quote(dataset.partition)}
    name = f"{_FOLDER}/{pipeline}/{record}.json"
    record_store.replace(clients.records, name, entries, metadata)


def read_quarantine(clients: Clients, pipeline: str) -> dict[tuple[str, str], str]:
    """(path, ETag) → reason for every file that is left out."""
    return {
        (entry["path"], entry["etag"]): f"{entry['reason']} (run {entry['run']})"
        for entries in record_store.read_all(clients.records, f"{_FOLDER}/{pipeline}/")
        for entry in entries
    }


def list_quarantined(clients: Clients) -> Mapping[str, Mapping[str | None, datetime]]:
    """Pipeline → partition → when files of it were last put into quarantine.

    None stands for the whole zone.
    """
    found: dict[str, dict[str | None, datetime]] = defaultdict(dict)
    blobs = clients.records.list_blobs(name_starts_with=f"{_FOLDER}/", include=["metadata"])
    for blob in blobs:
        pipeline = blob.name.split("/")[1]
        kept = (blob.metadata or {}).get(_PARTITION)
        partition = None if kept is None else unquote(kept)
        times = found[pipeline]
        times[partition] = max(blob.last_modified, times.get(partition, blob.last_modified))
    return found
