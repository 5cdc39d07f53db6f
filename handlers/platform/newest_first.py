"""Blobs that are listed newest first: the time in their names counts down.

Each blob's document is JSON in its metadata, so that a page costs one listing and no reads.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

Document = TypeVar("Document")

_LATEST_MS = 9_999_999_999_999


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
