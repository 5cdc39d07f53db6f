"""What a run leaves behind, read back with the SDKs: jobs, models, manifests."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator
from typing import Any

import pytest
from azure.storage.blob.aio import BlobServiceClient

from demo.cloud import models, workspace


@contextlib.contextmanager
def app_settings(endpoints: dict[str, Any]) -> Generator[None]:
    """The SDKs find everything through the environment, as they do in the app."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in endpoints["app_settings"].items():
            environment.setenv(name, value)
        yield


def jobs(endpoints: dict[str, Any]) -> dict[str, Any]:
    """Name → status of every job in the workspace. Blocking."""
    return {str(job.name): job.status for job in workspace(endpoints).jobs.list()}


def models_by_dataset(endpoints: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Dataset version → its one model; two for one dataset are a failure. Blocking."""
    found: dict[str, dict[str, Any]] = {}
    for model in models(endpoints, "digits"):
        assert model["dataset_version"] not in found, "two models of one dataset version"
        found[model["dataset_version"]] = model
    return found


async def manifest(blobs: BlobServiceClient, version: str) -> list[dict[str, Any]]:
    """The lines of a frozen manifest."""
    client = blobs.get_blob_client("landfall", f"manifests/digits/{version}/manifest.jsonl")
    downloader = await client.download_blob()
    return [json.loads(line) for line in (await downloader.readall()).splitlines()]
