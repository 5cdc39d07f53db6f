"""python -m benchmarks.landing_events_turn TASK …: one turn of `benchmarks.landing`, in a process.

Prints what it measured as one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

from azure.durable_functions import OrchestrationRuntimeStatus
from azure.storage.blob import BlobServiceClient

from handlers.landing.batch_records import record_batch
from handlers.landing.blob_created import handle_blob_events
from handlers.landing.event_records import advance_newest_event
from handlers.operate.reconciliation.landings import partitions_to_land, read_zone_records
from handlers.operate.reconciliation.rounds import PIPELINES_AT_ONCE
from handlers.platform.clients import Clients
from handlers.platform.event_envelope import from_message
from handlers.platform.settings import Settings
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.landing import LandingResult, LandingStatus, RecordBatch
from tests.unit.orchestrations.examples import DATASET, PIPELINE, with_rules

DELIVERIES = 5
# Messages per call of the function; Azure passes up to 1,000.
BATCH = 100
NOW = datetime(2026, 11, 22, 9, tzinfo=UTC)


def decide_events(records: str, container: str, events: str) -> dict[str, float]:
    """Give the handler of `blob-events` all events, each five times, shuffled.

    Raises:
        AssertionError: they opened more than one landing.
    """
    requests: Counter[str] = Counter()
    clients = _clients(records, container, requests)
    pipeline = _pipeline("digits")
    bodies = _bodies(int(events), str(clients.blobs.account_name), pipeline)
    hub: Any = _TaskHub(pipeline.name)
    decided: Counter[str] = Counter()

    async def drain() -> None:
        for start in range(0, len(bodies), BATCH):
            messages: list[Any] = [
                SimpleNamespace(message_id="m", get_body=lambda body=body: body)
                for body in bodies[start : start + BATCH]
            ]
            decided.update(
                await handle_blob_events(clients, {pipeline.name: pipeline}, hub, messages, now=NOW)
            )

    began = time.monotonic()
    cpu = time.process_time()
    asyncio.run(drain())
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    assert decided == {"opened": 1, "merged": len(bodies) - 1}, decided
    return {
        "events/s": len(bodies) / seconds,
        "CPU µs an event": cpu / len(bodies) * 1e6,
        "storage requests an event": sum(requests.values()) / len(bodies),
        "landings": float(hub.started),
    }


def parse_events(events: str) -> dict[str, float]:
    """Parse the same messages without the handler."""
    bodies = _bodies(int(events), "devstoreaccount1", _pipeline("digits"))
    began, cpu = time.monotonic(), time.process_time()
    for body in bodies:
        from_message(body)
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    return {"events/s": len(bodies) / seconds, "CPU µs an event": cpu / len(bodies) * 1e6}


def reconcile_zones(records: str, container: str, zones: str) -> dict[str, float]:
    """Decide for each of some zones of a million blobs whether to land it; none has changed.

    Each zone has a marker, whose existence is requested.
    """
    requests: Counter[str] = Counter()
    clients = _clients(records, container, requests)
    pipelines = [_pipeline(f"zone-{number:03}", marker="_SUCCESS") for number in range(int(zones))]
    for pipeline in pipelines:
        advance_newest_event(clients, pipeline.name, None, NOW - timedelta(hours=2))
        record_batch(clients, _last_batch(pipeline))
    requests.clear()
    began = time.monotonic()
    kept = read_zone_records(clients)
    with ThreadPoolExecutor(PIPELINES_AT_ONCE) as pool:
        due = list(pool.map(partial(partitions_to_land, clients, records=kept, now=NOW), pipelines))
    seconds = time.monotonic() - began
    assert not any(due), due
    return {"seconds": seconds, "storage requests a zone": sum(requests.values()) / len(pipelines)}


def _clients(records: str, container: str, requests: Counter[str]) -> Clients:
    clients = Clients(Settings({"DataStorage": records, "RECORDS_CONTAINER": container}))

    def count(request: Any) -> None:
        requests[request.http_request.method] += 1

    service = BlobServiceClient.from_connection_string(records, raw_request_hook=count)
    vars(clients).update(blobs=service)
    return clients


def _pipeline(name: str, *, marker: str | None = None) -> Pipeline:
    named = PIPELINE.model_copy(update={"name": name})
    return with_rules(named, source={"prefix": f"{name}/", "marker": marker})


def _bodies(events: int, account: str, pipeline: Pipeline) -> list[bytes]:
    """The events as Event Grid puts them into the queue."""
    bodies = [
        json.dumps(
            {
                "specversion": "1.0",
                "id": f"event-{number}",
                "source": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/"
                f"storageAccounts/{account}",
                "subject": f"/blobServices/default/containers/{pipeline.source.container}/blobs/"
                f"{pipeline.source.prefix}n{number % 1000:08}/{number:08}.JPEG",
                "type": "Microsoft.Storage.BlobCreated",
                "time": (NOW - timedelta(milliseconds=number)).isoformat(),
                "data": {"api": "PutBlob", "eTag": f"0x8D{number:08X}", "contentLength": 123},
            }
        ).encode()
        for number in range(events)
    ] * DELIVERIES
    random.Random(7).shuffle(bodies)  # noqa: S311 - the same order in each turn
    return bodies


def _last_batch(pipeline: Pipeline) -> RecordBatch:
    frozen_at = NOW - timedelta(hours=1)
    times = {"frozen_at": frozen_at, "newest": frozen_at - timedelta(hours=1)}
    return RecordBatch(
        batch=f"landing-{pipeline.name}@{frozen_at.isoformat()}",
        opened_at=frozen_at,
        opened_by="event",
        dataset=DATASET.model_copy(update={**times, "blobs": 1_000_000}),
        result=LandingResult(pipeline=pipeline.name, outcome="started"),
    )


class _TaskHub:
    """The methods of the durable client that the handler uses, with one landing that settles."""

    def __init__(self, pipeline: str) -> None:
        self.started = 0
        self._status = LandingStatus(phase="settling", pipeline=pipeline, opened_at=NOW).to_dict()

    async def get_status(self, instance: str) -> Any:
        return SimpleNamespace(
            instance_id=instance,
            runtime_status=OrchestrationRuntimeStatus.Running if self.started else None,
            custom_status=self._status,
        )

    async def start_new(self, _: str, instance: str, __: Any) -> str:
        self.started += 1
        return instance


TASKS: dict[str, Callable[..., dict[str, float]]] = {
    "decide": decide_events,
    "parse": parse_events,
    "reconcile": reconcile_zones,
}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(TASKS[sys.argv[1]](*sys.argv[2:])) + "\n")
