"""Recognizes blobs that stand for a folder and hold no data.

Accounts with a hierarchical namespace list a folder as a blob with the metadata `hdi_isfolder`. In
other accounts, tools write an empty blob `name/`, or `name_$folder$` (Hadoop).
https://learn.microsoft.com/azure/storage/blobs/storage-blobs-list
"""

from __future__ import annotations

from collections.abc import Mapping

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
