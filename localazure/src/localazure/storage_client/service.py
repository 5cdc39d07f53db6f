"""The services of a storage account."""

from __future__ import annotations

from enum import StrEnum


class Service(StrEnum):
    """A service of a storage account."""

    BLOB = "blob"
    QUEUE = "queue"
    TABLE = "table"
