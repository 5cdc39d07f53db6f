"""JSON documents in the records container, created once or replaced as a whole; listings of them.

In folders that are listed newest first, the time in a blob's name counts down, and its document is
JSON in its metadata: a page costs one listing and no reads.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError

from orchestrations.errors import TransientError, shorten

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

UPDATE_ROUNDS = 50
Document = TypeVar("Document")
_LATEST_MS = 9_999_999_999_999
SHOWN_CHARACTERS = 100
OPEN = "open"
"""Metadata of a document; see `read_open`."""


def read(records: ContainerClient, name: str) -> Any | None:
    """The document, or None if it does not exist."""
    try:
        return json.loads(records.download_blob(name).readall())
    except ResourceNotFoundError:
        return None


def create(
    records: ContainerClient,
    name: str,
    document: Any,
    metadata: Mapping[str, str] | None = None,
) -> bool:
    """Create a document. Return False, and change nothing, if it exists."""
    try:
        records.upload_blob(
            name, json.dumps(document), overwrite=False, metadata=dict(metadata or {})
        )
    except ResourceExistsError:
        return False
    return True


def replace(
    records: ContainerClient,
    name: str,
    document: Any,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Create or overwrite a document."""
    records.upload_blob(name, json.dumps(document), overwrite=True, metadata=dict(metadata or {}))


def update(
    records: ContainerClient,
    name: str,
    change: Callable[[Any | None], Any | None],
    metadata: Callable[[Any], Mapping[str, str]] = lambda _: {},
) -> None:
    """Read, change and write a document; repeat if another writer changed it in between.

    `change` returns the new document for the old one (or None), or None to leave it. `metadata`
    returns the metadata that listings show for a document.

    Raises:
        TransientError: other writers changed it during every try.
    """
    blob = records.get_blob_client(name)
    condition: dict[str, Any]
    for _ in range(UPDATE_ROUNDS):
        try:
            download = blob.download_blob()
            before = json.loads(download.readall())
            condition = {"overwrite": True, **unchanged(download.properties.etag)}
        except ResourceNotFoundError:
            before, condition = None, {"overwrite": False}
        after = change(before)
        if after is None:
            return
        text, shown = json.dumps(after), dict(metadata(after))
        try:
            blob.upload_blob(text, metadata=shown, **condition)
        except (ResourceExistsError, ResourceModifiedError):
            continue
        return
    raise TransientError(f"record {name} was written by others {UPDATE_ROUNDS} times in a row")


def delete(
    records: ContainerClient, name: str, *, unless: Callable[[Any], bool] = lambda _: False
) -> None:
    """Delete a document, unless `unless` is true for it or it is written meanwhile."""
    blob = records.get_blob_client(name)
    try:
        download = blob.download_blob()
        if unless(json.loads(download.readall())):
            return
        blob.delete_blob(**unchanged(download.properties.etag))
    except (ResourceNotFoundError, ResourceModifiedError):
        return


def unchanged(etag: str) -> dict[str, Any]:
    """The condition that a blob still has this ETag."""
    return {"etag": etag, "match_condition": MatchConditions.IfNotModified}


def read_all(records: ContainerClient, prefix: str) -> Iterator[Any]:
    """Every document below a prefix, in order of name."""
    for name in sorted(records.list_blob_names(name_starts_with=prefix)):
        document = read(records, name)
        if document is not None:  # deleted after the listing
            yield document


def read_open(records: ContainerClient, folder: str) -> Iterator[Any]:
    """Every document of a folder whose metadata says that what it is about has not ended."""
    for blob in records.list_blobs(name_starts_with=folder, include=["metadata"]):
        if OPEN in (blob.metadata or {}):
            document = read(records, str(blob.name))
            if document is not None:  # deleted after the listing
                yield document


def countdown(moment: datetime) -> str:
    """Thirteen digits, in milliseconds; a later moment sorts before an earlier one."""
    return f"{_LATEST_MS - int(moment.timestamp() * 1000):013d}"


def list_entries(
    records: ContainerClient,
    folder: str,
    *,
    metadata: str,
    first: str,
    after: str | None,
    page_size: int,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (key, document) for the entries of a folder, from a key on.

    Args:
        records: the records container.
        folder: ends with a slash; a key is the rest of a name.
        metadata: name of the metadata that holds the document; blobs without it are left out.
        first: the first key; all keys if empty.
        after: a key to leave out: the last one of the previous page.
        page_size: the number of entries that the caller reads.
    """
    # A service without `start_from` ignores it, so earlier keys are skipped below.
    start: dict[str, Any] = {"start_from": folder + first} if first else {}
    # Includes the key that is left out, so that one request is enough.
    results = page_size + (after is not None)
    blobs = records.list_blobs(
        name_starts_with=folder, include=["metadata"], results_per_page=results, **start
    )
    for blob in blobs:
        key = blob.name.removeprefix(folder)
        if key < first or key == after or metadata not in (blob.metadata or {}):
            continue
        yield key, json.loads(blob.metadata[metadata])


def first_page(
    entries: Iterable[tuple[str, Document]], limit: int
) -> tuple[list[Document], str | None]:
    """The first documents, at most `limit`, and the key of the last one if more follow."""
    found = list(itertools.islice(entries, limit + 1))
    following = found[limit - 1][0] if len(found) > limit else None
    return [document for _, document in found[:limit]], following


def loads_unique(text: bytes | str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is not JSON, or a key is there twice; the message names the key.
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            both = shorten(f"{members[key]!r} and {value!r}", SHOWN_CHARACTERS)
            raise ValueError(f"key {key!r} is there twice, with {both}")
        members[key] = value
    return members
