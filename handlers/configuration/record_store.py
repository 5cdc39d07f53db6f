"""JSON documents in the records container, created once or replaced whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient


def read(records: ContainerClient, name: str) -> Any | None:
    """The document, or None when there is none."""
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
    """Write a document that is not there yet. False, and nothing changed, when it is."""
    try:
        records.upload_blob(
            name, json.dumps(document), overwrite=False, metadata=dict(metadata or {})
        )
    except ResourceExistsError:
        return False
    return True


def replace(records: ContainerClient, name: str, document: Any) -> None:
    """Write a document, whatever was there."""
    records.upload_blob(name, json.dumps(document), overwrite=True)


def read_all(records: ContainerClient, prefix: str) -> Iterator[Any]:
    """Every document below a prefix, in order of name."""
    for name in sorted(records.list_blob_names(name_starts_with=prefix)):
        document = read(records, name)
        if document is not None:  # deleted since the listing
            yield document
