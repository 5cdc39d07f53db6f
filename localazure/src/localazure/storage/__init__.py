"""Blob, queue and table storage: Azurite behind a proxy that emits Event Grid's blob events."""
