"""Copies of blobs that nothing overwrites, for jobs to read: `dataset.freeze: copy`.

The service copies within the account; no byte passes through here. A copy is named by its content
and never written again, so that a dataset version costs only what is new in it, and a piece that is
copied a second time, after a crash, finds what is there.

Source: https://learn.microsoft.com/rest/api/storageservices/copy-blob
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from azure.core import MatchConditions
from azure.core.exceptions import (
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)

from handlers.configuration.clients import Clients
from handlers.durable.activity_adapter import activity
from handlers.landing_zone.batch_records import last_batch
from handlers.landing_zone.manifest_parts import parts_folder, read_part
from handlers.landing_zone.manifests import read_manifest_from
from orchestrations.contracts.datasets import CopyBlobs, Piece
from orchestrations.errors import DataChanged, TransientError
from orchestrations.manifest import ManifestLine, copy_name, decode_line

COPIES_AT_ONCE = 16
# Some 20 s of one core for the SDK, and as many requests.
BLOBS_PER_PIECE = 5000
_ENDED_WITHOUT_COPY = frozenset({"failed", "aborted"})

_Outcome = Literal["copied", "pending", "overtaken"]


def copies_folder(pipeline: str) -> str:
    """Where the copies of a pipeline's blobs are, in the records container."""
    return f"frozen/{pipeline}/"


@activity
def copy_blobs(clients: Clients, request: CopyBlobs) -> Piece:
    """Copy those blobs of a part that the last frozen batch of the zone does not have.

    Raises:
        DataChanged: some were written again, or deleted, since they were listed.
        TransientError: the service copies some of them in the background, and is not done.
    """
    folder = parts_folder(request.pipeline.name, request.freeze)
    lines = [decode_line(line) for line in read_part(clients.records, folder, request.part)]
    begin = int(request.marker or 0)
    missing = list(islice(_without_copy(clients, request, lines[begin:]), BLOBS_PER_PIECE))
    copier = _Copier(clients, request)
    with ThreadPoolExecutor(COPIES_AT_ONCE) as pool:
        outcomes = list(pool.map(copier.copy, (line for _, line in missing)))
    overtaken, pending = outcomes.count("overtaken"), outcomes.count("pending")
    if overtaken:
        raise DataChanged(
            f"{overtaken} of {len(outcomes)} blobs were written or deleted since they were listed"
        )
    if pending:
        raise TransientError(f"the service is still copying {pending} of {len(outcomes)} blobs")
    is_over = len(missing) < BLOBS_PER_PIECE
    return Piece(marker=None if is_over else str(begin + missing[-1][0] + 1))


def _without_copy(
    clients: Clients, request: CopyBlobs, lines: Sequence[ManifestLine]
) -> Iterator[tuple[int, ManifestLine]]:
    """The lines, with their numbers, whose copy the last frozen batch does not show to be there.

    Both are in order of path: its manifest is read beside them, from the first one's path on.
    """
    last = last_batch(clients, request.pipeline.name, request.partition)
    before: Iterator[ManifestLine] = iter(())
    if lines and last is not None and last.dataset.copies is not None:
        before = read_manifest_from(clients, last.dataset, lines[0].path)
    known = next(before, None)
    for number, line in enumerate(lines):
        while known is not None and known.path < line.path:
            known = next(before, None)
        if known is None or known.path != line.path or known.file != copy_name(line):
            yield number, line


@dataclass(frozen=True)
class _Copier:
    clients: Clients
    request: CopyBlobs

    def copy(self, line: ManifestLine) -> _Outcome:
        """Copy a blob as it was listed, unless its copy is there."""
        source = self.request.pipeline.source
        original = self.clients.blobs.get_blob_client(source.container, source.prefix + line.path)
        copy = self.clients.records.get_blob_client(
            copies_folder(self.request.pipeline.name) + copy_name(line)
        )
        try:
            started = copy.start_copy_from_url(
                original.url,
                match_condition=MatchConditions.IfMissing,
                **_as_listed(line),
            )
        except ResourceExistsError:
            properties = copy.get_blob_properties().copy
            if properties.status in _ENDED_WITHOUT_COPY:
                copy.delete_blob()  # a retry makes it
                return "pending"
            return "pending" if properties.status == "pending" else "copied"
        except (ResourceModifiedError, ResourceNotFoundError):
            return "overtaken"
        return "pending" if started["copy_status"] == "pending" else "copied"


def _as_listed(line: ManifestLine) -> dict[str, Any]:
    """The condition that a blob has not been written since; an uploader's manifest may have none.

    Its trainer finds out then: it compares size and MD5.
    """
    if not line.etag:
        return {}
    return {
        "source_etag": f'"{line.etag}"',
        "source_match_condition": MatchConditions.IfNotModified,
    }
