"""Events that cannot be parsed: one alert for each cause, for any number of events."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from handlers.landing import event_log
from handlers.landing.blob_created import handle_blob_events
from handlers.landing.event_log import UNREADABLE
from handlers.operate.reconciliation.reconciliation import reconcile
from tests.local.handlers.world_with_messaging import Namespace, World
from tests.local.handlers.zone_on_storage import queued
from tests.unit.handlers.azure_ml_fake import Workspace
from tests.unit.handlers.durable_fake import TaskHub

pytestmark = [
    pytest.mark.usefixtures("quiet_queues"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

NOW = datetime.now(UTC)  # retention removes events that were written long before
HOUR = timedelta(hours=1)


def an_event(number: int, account: str, kind: str = "Microsoft.Storage.BlobCreated") -> str:
    return json.dumps(
        {
            "specversion": "1.0",
            "id": f"event-{number}",
            "source": f"/subscriptions/s/providers/Microsoft.Storage/storageAccounts/{account}",
            "subject": f"/blobServices/default/containers/landing/blobs/digits/{number}.png",
            "type": kind,
            "time": NOW.isoformat(),
            "data": {"eTag": "0x1", "contentLength": 4},
        }
    )


async def handle(world: World, *bodies: str, at: datetime = NOW) -> None:
    hub: Any = TaskHub()
    messages = [queued(body) for body in bodies]
    decisions = await handle_blob_events(world.clients, {}, hub, messages, now=at)
    assert decisions == {"rejected": len(bodies)}


async def alerts(world: World, namespace: Namespace, at: datetime) -> dict[str, dict[str, Any]]:
    """Reconcile once; return cause → alert."""
    vars(world.clients).setdefault("ml", Workspace())
    hub: Any = TaskHub()
    await reconcile(world.clients, {}, hub, now=at)
    taken = namespace.take_present("ops-alerts")
    documents = [json.loads(str(each)) for each in taken if each.subject == "events-rejected"]
    found = {each["data"]["cause"]: each["data"] for each in documents}
    assert len(found) == len(documents), "one alert for each cause"
    return found


async def test_many_events_of_one_cause_are_one_alert_and_another_cause_is_another(
    world: World, namespace: Namespace
) -> None:
    for block in range(8):  # one block per call of the trigger
        first = 50 * block
        await handle(world, *(an_event(first + each, "another") for each in range(50)))
    found = await alerts(world, namespace, NOW + HOUR)
    assert list(found) == ["other-account"]
    alert = found["other-account"]
    assert alert["count"] == 400
    assert [each["event_id"] for each in alert["examples"]] == ["event-0", "event-1", "event-2"]
    assert "'another' is not the one of connection DataStorage" in alert["examples"][0]["reason"]

    # The alert names the place of the events.
    subject = "/blobServices/default/containers/landing/blobs/digits/399.png"
    (entry,) = event_log.read(world.clients.records, UNREADABLE, subject, since=NOW, until=NOW)
    assert entry.event_id == "event-399"
    names = list(world.clients.records.list_blob_names(name_starts_with=alert["records"]))
    assert len(names) == 1

    # The same cause causes no second alert within a day; other causes do.
    await handle(world, *(an_event(each, "another") for each in range(400, 410)), at=NOW + HOUR)
    await handle(world, "no event", at=NOW + HOUR)
    await handle(world, an_event(1, "another", "Microsoft.Storage.BlobTierChanged"), at=NOW + HOUR)
    found = await alerts(world, namespace, NOW + 2 * HOUR)
    assert {cause: each["count"] for cause, each in found.items()} == {
        "not-json": 1,
        "unknown-type": 1,
    }
    assert await alerts(world, namespace, NOW + 3 * HOUR) == {}

    # After a day, there is a second alert about the events since the first one.
    found = await alerts(world, namespace, NOW + timedelta(days=1) + HOUR)
    assert {cause: each["count"] for cause, each in found.items()} == {"other-account": 10}
    assert await alerts(world, namespace, NOW + timedelta(days=3)) == {}
