"""The rule for which blobs are a pipeline's data; blobs that stand for a folder are not.

Accounts with a hierarchical namespace list a folder as a blob with the metadata `hdi_isfolder`. In
other accounts, tools write an empty blob `name/`, or `name_$folder$` (Hadoop).
https://learn.microsoft.com/azure/storage/blobs/storage-blobs-list
"""

from __future__ import annotations

from collections.abc import Mapping

from handlers.landing.blob_events import is_safe_path
from handlers.platform.blob_pages import ListedBlob
from orchestrations.configuration.pipeline import Source

_HADOOP_SUFFIX = "_$folder$"


def is_stub_name(name: str, size: int) -> bool:
    """Whether a blob of this name and size in bytes stands for a folder."""
    return size == 0 and (name.endswith(("/", _HADOOP_SUFFIX)))


def is_directory_stub(name: str, size: int, metadata: Mapping[str, str] | None) -> bool:
    """Whether a blob stands for a folder, by its name, size and metadata.

    Metadata keys are compared without case, since services and tools write both.
    """
    fields = {key.lower(): value for key, value in (metadata or {}).items()}
    return fields.get("hdi_isfolder", "").lower() == "true" or is_stub_name(name, size)


def is_data(blob: ListedBlob, source: Source, path: str) -> bool:
    """Whether a listed blob is data of a pipeline; `path` is its name below the source's prefix."""
    return (
        not blob.is_directory
        and not is_stub_name(path, blob.size)
        and source.takes(path)
        and is_safe_path(blob.name)
    )
