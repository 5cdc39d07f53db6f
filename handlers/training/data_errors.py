"""Recognises that a job failed because of its data before its program could write `error.json`.

Azure ML's data runtime downloads inputs before the program starts. The texts are those of its
library, azureml-dataprep-rslex 2.26; they have no published list.
"""

from __future__ import annotations

import re

from handlers.platform.azure_ml_jobs import failure_message
from handlers.platform.blob_pages import list_page
from handlers.platform.clients import Clients
from handlers.platform.manifests import read_manifest_from
from handlers.platform.run_records import claimed_request, read_run_record
from orchestrations.contracts.manifest import ManifestLine
from orchestrations.contracts.runs import RunRequest
from orchestrations.errors import DataChanged, JobRejected, PermanentError

# The lines are kept in memory, 60 MB for so many.
CHECKED_BLOBS = 200_000
# A zone may hold more than the dataset: other partitions. A page has 5,000 blobs.
LISTED_PAGES = 100
_CHANGED = re.compile(
    r"source was modified|file was modified during read|size changed during download"
    r"|ConditionNotMet|StreamAccess\.NotFound",
    re.IGNORECASE,
)
# In Rust's words: a program in Python says "[Errno 36]".
_NAME_TOO_LONG = re.compile(r"file ?name too long \(os error 36\)", re.IGNORECASE)


def find_data_error(clients: Clients, pipeline: str, run: str) -> PermanentError | None:
    """The error of a failed job without `error.json`, if its data is at fault.

    - `DataChanged`: a file was overwritten or deleted while the job downloaded it. Only if the zone
      holds other content now: where the same content was written again, another attempt succeeds,
      and no later batch would train on it.
    - `JobRejected`: a blob's name cannot be the name of a file.
    """
    message = failure_message(clients, run)
    if message is None:
        return None
    if _NAME_TOO_LONG.search(message):
        return JobRejected(
            f"{message}; rename that blob (its name does not fit into the file system of a node), "
            "or mount the input instead of downloading it"
        )
    if not _CHANGED.search(message):
        return None
    record = read_run_record(clients, run)
    change = record and find_change(clients, pipeline, record.status.dataset_version)
    return DataChanged(f"{change} while the job read it: {message}") if change else None


def find_change(clients: Clients, pipeline: str, version: str) -> str | None:
    """What happened to a file of a dataset version since it was frozen, in words.

    None: nothing; or dataset or zone are too large, or jobs read copies, which nobody overwrites.
    """
    request = claimed_request(clients, pipeline, version)
    if request is None or request.dataset.copies is not None:
        return None
    if request.dataset.blobs > CHECKED_BLOBS:
        return None
    listed = _listed(clients, request)
    if listed is None:
        return None
    frozen = {line.path: line for line in read_manifest_from(clients, request.dataset, "")}
    for path, content in listed.items():
        line = frozen.pop(path, None)
        if line is not None and content != _content(line):
            return f"{path!r} was overwritten"
    deleted = next(iter(frozen), None)
    return None if deleted is None else f"{deleted!r} was deleted"


def _content(line: ManifestLine) -> tuple[int, str]:
    """What identifies the content of a file: its size, and its MD5 or else its ETag."""
    return line.size, line.md5 or line.etag


def _listed(clients: Clients, request: RunRequest) -> dict[str, tuple[int, str]] | None:
    """Path → content, of all blobs in the zone or partition; None if they are too many."""
    source, partition = request.pipeline.source, request.dataset.partition
    folder = source.prefix + ("" if partition is None else source.partition(partition).prefix)
    container = clients.blobs.get_container_client(source.container)
    found: dict[str, tuple[int, str]] = {}
    marker: str | None = None
    for _ in range(LISTED_PAGES):
        page = list_page(container, folder, marker=marker)
        for blob in page.blobs:
            found[blob.name.removeprefix(source.prefix)] = blob.size, blob.md5 or blob.etag
        marker = page.next_marker
        if marker is None:
            return found
    return None
