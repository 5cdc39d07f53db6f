"""The workspace's events in the Event Grid schema, and the outbox that holds them.

The topic is the ARM id of the workspace. Times are epoch seconds.

https://learn.microsoft.com/azure/event-grid/event-schema-machine-learning
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from localazure.machinelearning.addresses import PROVIDER
from localazure.machinelearning.store import Resource
from localazure.sqlite.database import Database

DEFAULT_EXPERIMENT = "Default"


def run_event(topic: str, job: Resource, status: str | None, at: float) -> dict[str, Any]:
    """RunStatusChanged if a status is given, else RunCompleted.

    The experiment's name is also its id.
    """
    experiment = job.properties.get("experimentName") or DEFAULT_EXPERIMENT
    data: dict[str, Any] = {
        "experimentId": experiment,
        "experimentName": experiment,
        "runId": job.name,
        "runType": None,
        "runTags": job.properties.get("tags") or {},
        "runProperties": job.properties.get("properties") or {},
    }
    if status is not None:
        data["runStatus"] = status
    kind = "RunCompleted" if status is None else "RunStatusChanged"
    return _event(topic, f"experiments/{experiment}/runs/{job.name}", kind, data, at)


def model_registered(topic: str, model: Resource) -> dict[str, Any]:
    """ModelRegistered, for a version that was just created."""
    data = {
        "ModelName": model.name,
        "ModelVersion": model.version,
        "ModelTags": model.properties.get("tags") or {},
        "ModelProperties": model.properties.get("properties") or {},
    }
    subject = f"models/{model.name}:{model.version}"
    return _event(topic, subject, "ModelRegistered", data, model.created_at)


def model_deployed(
    topic: str, endpoint: str, models: Sequence[str], deployment: dict[str, Any], at: float
) -> dict[str, Any]:
    """ModelDeployed, for a provisioned deployment with models `name:version`."""
    data = {
        "ServiceName": endpoint,
        "ServiceComputeType": "Managed",
        "ModelIds": ",".join(models),
        "ServiceTags": deployment.get("tags") or {},
        "ServiceProperties": deployment["properties"].get("properties") or {},
    }
    return _event(topic, f"endpoints/{endpoint}", "ModelDeployed", data, at)


def _event(topic: str, subject: str, kind: str, data: dict[str, Any], at: float) -> dict[str, Any]:
    return {
        "topic": topic,
        "subject": subject,
        "eventType": f"{PROVIDER}.{kind}",
        "eventTime": datetime.fromtimestamp(at, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "id": str(uuid.uuid4()),
        "data": data,
        "dataVersion": "1",
        "metadataVersion": "1",
    }


def enqueue(connection: sqlite3.Connection, event: dict[str, Any]) -> None:
    """Insert an event into the outbox, in the transaction of the change."""
    connection.execute("INSERT INTO event (body) VALUES (?)", (json.dumps(event),))


class EventOutbox:
    """The outbox in the table `event`. `Workspace.write` sets `filled`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.filled = asyncio.Event()
        self.filled.set()

    def oldest(self, limit: int) -> list[tuple[int, dict[str, Any]]]:
        """The oldest events with their numbers."""
        rows = self._database.read("SELECT * FROM event ORDER BY number LIMIT ?", (limit,))
        return [(row["number"], json.loads(row["body"])) for row in rows]

    async def published(self, numbers: Sequence[int]) -> None:
        """Delete events that Event Grid has acknowledged."""
        rows = [(number,) for number in numbers]

        def delete(connection: sqlite3.Connection) -> None:
            connection.executemany("DELETE FROM event WHERE number = ?", rows)

        await self._database.write(delete)
