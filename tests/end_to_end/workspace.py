"""Results of a run, read back with the SDKs: jobs, models, manifests."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator
from typing import Any

import pytest
from azure.storage.blob.aio import BlobServiceClient

from demo.cloud import Cloud, models
from tests.local.span_receiver import Spans

DELIVERIES = 6
"""`started` and `succeeded`, on three channels."""


@contextlib.contextmanager
def app_settings(endpoints: dict[str, Any]) -> Generator[None]:
    """Set the app settings as environment variables; the SDKs read them, as in the app."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in endpoints["app_settings"].items():
            environment.setenv(name, value)
        yield


def jobs(cloud: Cloud) -> dict[str, Any]:
    """Name → status of every job in the workspace. It blocks."""
    return {str(job.name): job.status for job in cloud.workspace.jobs.list()}


def models_by_dataset(cloud: Cloud) -> dict[str, dict[str, Any]]:
    """Dataset version → its only model; fail if there are two. It blocks."""
    found: dict[str, dict[str, Any]] = {}
    for model in models(cloud, "digits"):
        assert model["dataset_version"] not in found, "two models of one dataset version"
        found[model["dataset_version"]] = model
    return found


async def manifest(blobs: BlobServiceClient, version: str) -> list[dict[str, Any]]:
    """The lines of a frozen manifest."""
    client = blobs.get_blob_client("landfall", f"manifests/digits/{version}/manifest.jsonl")
    downloader = await client.download_blob()
    return [json.loads(line) for line in (await downloader.readall()).splitlines()]


def model_tags(cloud: Cloud, run: str, model: str = "digits") -> dict[str, str]:
    """The tags of the model that a run registered. It blocks."""
    registered = cloud.workspace.models.list(model)
    tags = [each.tags or {} for each in registered]
    (found,) = [each for each in tags if each.get("landfall.run") == run]
    return found


def whole_trace(
    received: Spans, trace: str, run: str, name: str = ""
) -> list[dict[str, Any]] | None:
    """The spans of a trace; None until it has all deliveries and a span of the run.

    The span's name begins with `name`.
    """
    spans = [span for span in received.values() if span["traceId"] == trace]
    delivered = [span for span in spans if span["name"].startswith("deliver ")]
    has_run = any(
        {"key": "landfall.run.id", "value": {"stringValue": run}} in span.get("attributes", [])
        for span in spans
        if span["name"].startswith(name)
    )
    return spans if has_run and len(delivered) >= DELIVERIES else None
