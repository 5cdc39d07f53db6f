"""Spark's commit by rename in an account with a hierarchical namespace, from SDK to manifest."""

from __future__ import annotations

import sys
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from azure.functions import EventGridEvent
from azure.storage.filedatalake import FileSystemClient

from handlers.landing.blob_created import handle_blob_events
from handlers.platform.manifests import read_manifest_from
from localazure.runtime.environment import Environment
from localazure.storage.service import event_journal
from orchestrations.names import landing_instance
from tests.fakes.durable_client import TaskHub
from tests.local.handlers.zone_on_storage import LAKE, Zone


def emitted(environment: Environment, prefix: str) -> list[EventGridEvent]:
    """The events of a zone in the journal of the storage part, in order."""
    with closing(event_journal(environment)) as journal:
        events = [event for _, event in journal.oldest(sys.maxsize)]
    return [
        EventGridEvent(
            id=event["id"],
            topic=event["topic"],
            subject=event["subject"],
            event_type=event["eventType"],
            event_time=datetime.fromisoformat(event["eventTime"]),
            data=event["data"],
            data_version=event["dataVersion"],
        )
        for event in events
        if f"/blobs/{prefix}" in event["subject"]
    ]


async def test_what_spark_commits_by_rename_is_a_landing(
    zone: Zone, storage_part: Environment
) -> None:
    text = storage_part.storage_connection_string(LAKE)
    prefix = zone.pipeline.source.prefix
    with FileSystemClient.from_connection_string(text, "landing") as landing:
        task = f"staging/{prefix}_temporary/0/task_0"
        landing.create_directory(f"{prefix}7")
        for name in ("part-0.png", "part-1.png"):
            file = landing.get_file_client(f"{task}/{name}")
            file.upload_data(name.encode(), overwrite=True)
        landing.get_file_client(f"{task}/part-0.png").rename_file(f"landing/{prefix}7/part-0.png")
        landing.get_directory_client(task).rename_directory(f"landing/{prefix}8")
    events = emitted(storage_part, prefix)
    # The Event Grid subscription in infra/ excludes DirectoryCreated.
    subscribed = [event for event in events if "DirectoryCreated" not in str(event.event_type)]
    assert [str(event.event_type).rpartition(".")[2] for event in subscribed] == [
        "BlobRenamed",
        "DirectoryRenamed",
    ]
    zone.rules("source", include=["*.png"])  # the directory's name does not match the pattern
    hub: Any = TaskHub()
    pipelines = {zone.pipeline.name: zone.pipeline}
    decisions = await handle_blob_events(
        zone.clients, pipelines, hub, subscribed, now=datetime.now(UTC)
    )
    assert decisions == {"opened": 1, "merged": 1}
    assert hub.started == [landing_instance(zone.pipeline.name)]
    blobs = [line.path for line in read_manifest_from(zone.clients, zone.freeze(), "")]
    assert blobs == ["7/part-0.png", "8/part-1.png"]
