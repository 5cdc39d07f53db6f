"""Immutable copies of blobs, which jobs read: `dataset.freeze: copy`.

The service copies within the account, so the app transfers no content. A copy is named by its
content and never overwritten: a dataset version costs only its new blobs, and copying a piece again
after a crash finds the existing copies.

Source: https://learn.microsoft.com/rest/api/storageservices/copy-blob
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError

from handlers.landing.batch_records import last_batch
from handlers.landing.manifest_parts import parts_folder, read_part
from handlers.platform.activity_adapter import activity
from handlers.platform.clients import Clients
from handlers.platform.configuration.configurations import read_pipeline
from handlers.platform.manifests import read_manifest_from
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.datasets import CopyBlobs, Piece
from orchestrations.contracts.manifest import ManifestLine, copy_name, decode_line
from orchestrations.errors import DataChanged, InvalidManifest, TransientError, name_some

if TYPE_CHECKING:
    from azure.storage.blob import BlobClient

COPIES_AT_ONCE = 16
# One request per blob; the SDK uses about 20 s of one core for them.
BLOBS_PER_PIECE = 5000
_CONTAINER_NOT_FOUND = "ContainerNotFound"
_ENDED_WITHOUT_COPY = frozenset({"failed", "aborted"})

_Outcome = Literal["copied", "pending", "overwritten", "missing"]


def copies_folder(pipeline: str) -> str:
    """The folder of a pipeline's copies in the records container."""
    return f"frozen/{pipeline}/"


@activity
def copy_blobs(clients: Clients, request: CopyBlobs) -> Piece:
    """Copy the blobs of a part that are not in the last frozen batch of the zone.

    Raises:
        DataChanged: blobs were overwritten or deleted after they were listed.
        InvalidManifest: the uploader's manifest names files that do not exist.
        TransientError: the service is still copying blobs, or a container is missing.
    """
    pipeline = read_pipeline(clients, request.pipeline, request.configuration)
    folder = parts_folder(pipeline.name, request.freeze)
    lines = [decode_line(line) for line in read_part(clients.records, folder, request.part)]
    begin = int(request.marker or 0)
    missing = list(islice(_lines_to_copy(clients, request, lines[begin:]), BLOBS_PER_PIECE))
    copy = partial(_copy, clients, pipeline)
    with ThreadPoolExecutor(COPIES_AT_ONCE) as pool:
        outcomes = list(pool.map(copy, (line for _, line in missing)))
    by_path: Mapping[str, _Outcome] = {
        line.path: outcome for (_, line), outcome in zip(missing, outcomes, strict=True)
    }
    _check_there(pipeline, request.partition, by_path)
    pending = outcomes.count("pending")
    if pending:
        raise TransientError(f"the service is still copying {pending} of {len(outcomes)} blobs")
    is_over = len(missing) < BLOBS_PER_PIECE
    return Piece(marker=None if is_over else str(begin + missing[-1][0] + 1))


def _check_there(
    pipeline: Pipeline, partition: str | None, outcomes: Mapping[str, _Outcome]
) -> None:
    """Raise unless every blob exists and is unchanged since it was listed."""
    source = pipeline.source
    missing = [path for path, outcome in outcomes.items() if outcome == "missing"]
    written = [path for path, outcome in outcomes.items() if outcome == "overwritten"]
    if missing and source.manifest is not None:
        own = None if partition is None else source.partition(partition)
        manifest = f"{source.container}/{source.prefix}{source.marker_path(own)}"
        raise InvalidManifest(
            f"{manifest} names {name_some(missing)}, which {source.container}/{source.prefix} does "
            "not hold: upload what is missing, then write the manifest again"
        )
    if missing or written:
        changes = [("written", written), ("deleted", missing)]
        raise DataChanged(
            "since they were listed, "
            + " and ".join(f"{name_some(paths)} {verb}" for verb, paths in changes if paths)
        )


def _lines_to_copy(
    clients: Clients, request: CopyBlobs, lines: Sequence[ManifestLine]
) -> Iterator[tuple[int, ManifestLine]]:
    """The numbered lines whose copy is not known from the last frozen batch.

    Both are in order of path: the batch's manifest is read in step with the lines.
    """
    last = last_batch(clients, request.pipeline, request.partition)
    before: Iterator[ManifestLine] = iter(())
    if lines and last is not None and last.dataset.copies is not None:
        before = read_manifest_from(clients, last.dataset, lines[0].path)
    copied = next(before, None)
    for number, line in enumerate(lines):
        while copied is not None and copied.path < line.path:
            copied = next(before, None)
        if copied is None or copied.path != line.path or copied.file != copy_name(line):
            yield number, line


def _copy(clients: Clients, pipeline: Pipeline, line: ManifestLine) -> _Outcome:
    """Copy a blob if it is unchanged since it was listed, unless the copy exists."""
    source = pipeline.source
    original = clients.blobs.get_blob_client(source.container, source.prefix + line.path)
    copy = clients.records.get_blob_client(copies_folder(pipeline.name) + copy_name(line))
    try:
        started = copy.start_copy_from_url(
            original.url, match_condition=MatchConditions.IfMissing, **_as_listed(line)
        )
    except ResourceExistsError:
        return _adopt(copy)
    except ResourceModifiedError:
        return "overwritten"
    except ResourceNotFoundError as error:
        return _why_not_found(clients, original, error)
    return "pending" if started["copy_status"] == "pending" else "copied"


def _why_not_found(
    clients: Clients, original: BlobClient, error: ResourceNotFoundError
) -> _Outcome:
    """Find what is missing after a 404 of Copy Blob: the blob, or one of the two containers.

    The error code can be `CannotVerifyCopySource` in every case.
    """
    try:
        original.get_blob_properties()
    except ResourceNotFoundError as of_original:
        # The response to HEAD has no body: the error code is in a header.
        if of_original.error_code != _CONTAINER_NOT_FOUND:  # pyright: ignore[reportAttributeAccessIssue] - set by azure-storage
            return "missing"
        container = original.container_name
    else:
        container = clients.records.container_name
    raise TransientError(
        f"container {container!r} of account {clients.blobs.account_name!r} is missing: "
        "blobs cannot be copied until there is one of this name"
    ) from error


def _adopt(copy: BlobClient) -> _Outcome:
    """Adopt an existing copy; "pending" if a retry must create it or wait for it."""
    try:
        properties = copy.get_blob_properties()
        if properties.copy.status in _ENDED_WITHOUT_COPY:
            copy.delete_blob()
            return "pending"
        if properties.copy.status == "pending":
            return "pending"
        # Renew its write time: `copy_retention` deletes old copies that no kept version names.
        copy.set_blob_metadata(properties.metadata)
    except ResourceNotFoundError:  # deleted in between
        return "pending"
    return "copied"


def _as_listed(line: ManifestLine) -> dict[str, Any]:
    """The condition that a blob is unchanged; an uploader's manifest may have no ETag for it.

    Without an ETag, the trainer detects a change: it compares size and MD5.
    """
    if not line.etag:
        return {}
    return {
        "source_etag": f'"{line.etag}"',
        "source_match_condition": MatchConditions.IfNotModified,
    }
