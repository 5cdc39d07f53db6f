"""Finds out whether a zone still holds the files of a frozen manifest."""

from __future__ import annotations

from handlers.landing.dataset_claims import claimed_request
from handlers.landing.listing import list_page
from handlers.platform.clients import Clients
from handlers.platform.manifests import read_manifest_from
from orchestrations.contracts.manifest import ManifestLine
from orchestrations.contracts.runs import RunRequest

# The lines are kept in memory, 60 MB for so many.
CHECKED_BLOBS = 200_000
# A zone may hold more than the dataset: other partitions. A page has 5,000 blobs.
LISTED_PAGES = 100


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
