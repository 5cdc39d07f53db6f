from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from azure.core.exceptions import HttpResponseError

from handlers.landing import event_records
from handlers.landing.blob_created import handle_blob_events
from handlers.landing.event_records import UNREADABLE, Entry, append_to_log, read_log
from handlers.operate.reconciliation.reconciliation import reconcile
from tests.fakes.azure_ml import Workspace
from tests.fakes.durable_client import TaskHub
from tests.local.handlers.world_with_messaging import Namespace, World
from tests.local.handlers.zone_on_storage import Zone, queued

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

BLOB = "digits/ü\n?.png"
AT = datetime(2026, 11, 21, 12, 59, 59, tzinfo=UTC)
HOUR = timedelta(hours=1)
pytestmark = [
    pytest.mark.usefixtures("quiet_queues"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
NOW = datetime.now(UTC)  # retention removes events that were written long before


def an_entry(event_id: str, blob: str = BLOB) -> Entry:
    return Entry(
        event_id=event_id,
        change="created",
        blob=blob,
        etag="0x1",
        event_time="2026-11-21T12:00:00+00:00",
        decided_at="2026-11-21T12:00:01+00:00",
        decision="merged",
        reason="“because”",
    )


def ids(zone: Zone, since: datetime, until: datetime, blob: str = BLOB) -> list[str]:
    found = read_log(zone.clients.records, "digits", blob, since=since, until=until)
    return [entry.event_id for entry in found]


def test_what_was_decided_on_a_blob_is_read_again(zone: Zone) -> None:
    entries = [an_entry("e1"), an_entry("e2", "digits/other.png"), an_entry("e3")]
    append_to_log(zone.clients.records, "digits", entries, at=AT)
    found = list(read_log(zone.clients.records, "digits", BLOB, since=AT, until=AT))
    assert found == [entries[0], entries[2]]


def test_only_the_hours_that_are_asked_for_are_read(zone: Zone) -> None:
    for hour in range(4):
        append_to_log(zone.clients.records, "digits", [an_entry(f"e{hour}")], at=AT + hour * HOUR)
    append_to_log(zone.clients.records, "digits-b", [an_entry("theirs")], at=AT)
    assert ids(zone, AT, AT + HOUR) == ["e0", "e1"]
    assert ids(zone, AT + 2 * HOUR, AT + 9 * HOUR) == ["e2", "e3"]
    assert ids(zone, AT + 8 * HOUR, AT + 9 * HOUR) == []


def test_many_decisions_are_one_block(zone: Zone) -> None:
    entries = [an_entry(f"e{number}") for number in range(1000)]
    append_to_log(zone.clients.records, "digits", entries, at=AT)
    (blob,) = zone.clients.records.list_blobs(name_starts_with="events/")
    client = zone.clients.records.get_blob_client(blob.name)
    assert client.get_blob_properties().append_blob_committed_block_count == 1
    assert len(ids(zone, AT, AT)) == 1000


def test_more_than_a_block_holds_are_several(zone: Zone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_records, "BLOCK_LIMIT_BYTES", 700)
    append_to_log(zone.clients.records, "digits", [an_entry(f"e{n}") for n in range(10)], at=AT)
    assert ids(zone, AT, AT) == [f"e{n}" for n in range(10)]


def test_writers_at_the_same_time_lose_nothing(zone: Zone) -> None:
    def write(number: int) -> None:
        append_to_log(zone.clients.records, "digits", [an_entry(f"e{number}")], at=AT)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(40)))
    assert sorted(ids(zone, AT, AT)) == sorted(f"e{number}" for number in range(40))


class FullFile:
    """The records container; the first blob of an hour has the maximum number of blocks."""

    def __init__(self, records: ContainerClient) -> None:
        self.records = records

    def get_blob_client(self, name: str) -> Any:
        if name.endswith("_0000.jsonl"):
            return self
        return self.records.get_blob_client(name)

    def append_block(self, _: bytes) -> None:
        error = HttpResponseError("The committed block count cannot exceed the maximum limit")
        error.error_code = "BlockCountExceedsLimit"  # pyright: ignore[reportAttributeAccessIssue] - as the SDK sets it
        raise error


def test_a_full_file_is_followed_by_another(zone: Zone) -> None:
    full: Any = FullFile(zone.clients.records)
    append_to_log(full, "digits", [an_entry("e1")], at=AT)
    (name,) = zone.clients.records.list_blob_names(name_starts_with="events/")
    assert name.endswith("_0001.jsonl")
    assert ids(zone, AT, AT) == ["e1"]


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
    (entry,) = read_log(world.clients.records, UNREADABLE, subject, since=NOW, until=NOW)
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
