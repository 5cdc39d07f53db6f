"""Blob, queue and table storage: Azurite behind a proxy that emits Event Grid's blob events."""

from localazure.storage.service import serve

__all__ = ["serve"]
