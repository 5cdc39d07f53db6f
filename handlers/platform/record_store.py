"""JSON documents in the records container, created once or replaced as a whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from azure.core import MatchConditions
from azure.core.exceptions import (
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)

from orchestrations.errors import TransientError

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

UPDATE_ROUNDS = 50


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
