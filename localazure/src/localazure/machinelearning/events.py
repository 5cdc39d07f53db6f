"""Events of the workspace in the Event Grid schema, and the outbox that they wait in.

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

from localazure.sqlite.database import Database

_TYPE = "Microsoft.MachineLearningServices"


def run_event(
    *,
    topic: str,
    run: str,
    experiment: str,
    properties: dict[str, Any],
    status: str | None,
    at: float,
) -> dict[str, Any]:
    """RunStatusChanged when a status is given, else RunCompleted.

    Args:
        topic: ARM id of the workspace.
        run: the job's name.
        experiment: its experiment's name, here also the experiment's id.
        properties: of the job's resource body.
        status: the state entered.
        at: epoch seconds.
    """
    data: dict[str, Any] = {
        "experimentId": experiment,
        "experimentName": experiment,
        "runId": run,
        "runType": None,
        "runTags": properties.get("tags") or {},
        "runProperties": properties.get("properties") or {},
    }
    if status is not None:
        data["runStatus"] = status
    return _event(
        topic,
        f"experiments/{experiment}/runs/{run}",
        "RunCompleted" if status is None else "RunStatusChanged",
        data,
        at,
    )


def model_registered(
    *, topic: str, name: str, version: str, properties: dict[str, Any], at: float
) -> dict[str, Any]:
    """ModelRegistered; `properties` is the model version's resource body."""
    data = {
        "ModelName": name,
        "ModelVersion": version,
        "ModelTags": properties.get("tags") or {},
        "ModelProperties": properties.get("properties") or {},
    }
    return _event(topic, f"models/{name}:{version}", "ModelRegistered", data, at)


def model_deployed(
    *,
    topic: str,
    service: str,
    models: Sequence[str],
    tags: dict[str, Any],
    properties: dict[str, Any],
    at: float,
) -> dict[str, Any]:
    """ModelDeployed: a deployment of an endpoint was provisioned.

    Args:
        topic: ARM id of the workspace.
        service: the endpoint's name.
        models: `name:version` of each.
        tags: the deployment's.
        properties: the deployment's.
        at: epoch seconds.
    """
    data = {
        "ServiceName": service,
        "ServiceComputeType": "Managed",
        "ModelIds": ",".join(models),
        "ServiceTags": tags,
        "ServiceProperties": properties,
    }
    return _event(topic, f"endpoints/{service}", "ModelDeployed", data, at)


def _event(topic: str, subject: str, kind: str, data: dict[str, Any], at: float) -> dict[str, Any]:
    return {
        "topic": topic,
        "subject": subject,
        "eventType": f"{_TYPE}.{kind}",
        "eventTime": datetime.fromtimestamp(at, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "id": str(uuid.uuid4()),
        "data": data,
        "dataVersion": "1",
        "metadataVersion": "1",
    }


def enqueue(connection: sqlite3.Connection, event: dict[str, Any]) -> None:
    """Put an event into the outbox, in the transaction of the change."""
    connection.execute("INSERT INTO event (body) VALUES (?)", (json.dumps(event),))


class EventOutbox:
    """The table `event` as an outbox; set `filled` after a transaction that added events."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.filled = asyncio.Event()
        self.filled.set()

    def oldest(self, limit: int) -> list[tuple[int, dict[str, Any]]]:
        """The oldest events, each with its number."""
        rows = self._database.read("SELECT * FROM event ORDER BY number LIMIT ?", (limit,))
        return [(row["number"], json.loads(row["body"])) for row in rows]

    async def published(self, numbers: Sequence[int]) -> None:
        """Delete events that Event Grid has acknowledged."""
        rows = [(number,) for number in numbers]

        def delete(connection: sqlite3.Connection) -> None:
            connection.executemany("DELETE FROM event WHERE number = ?", rows)

        await self._database.write(delete)
