from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.pipeline.transport import RequestsTransport

from handlers.landing import blob_created, event_records
from handlers.landing.blob_created import (
    Decisions,
    handle_blob_events,
)
from handlers.landing.event_records import Entry, read_zone_activity
from handlers.platform.event_envelope import Delivered
from orchestrations.contracts.landing import LandingRequest, LandingStatus, ReadZoneActivity
from orchestrations.names import landing_instance
from tests.fakes.durable_client import TaskHub
from tests.local.handlers.zone_on_storage import Zone, queued
from tests.spying import spy

NOW = datetime.now(UTC)
SECOND = timedelta(seconds=1)


async def handle(zone: Zone, hub: Any, *events: Delivered) -> Decisions:
    """Handle events of either trigger: of the queue, or of Event Grid."""
    pipelines = {zone.pipeline.name: zone.pipeline}
    return await handle_blob_events(zone.clients, pipelines, hub, events, now=NOW)


def kept(zone: Zone, path: str) -> list[Entry]:
    found = event_records.read_log(
        zone.clients.records, zone.pipeline.name, zone.blob(path), since=NOW, until=NOW
    )
    return list(found)


def newest_event(zone: Zone, partition: str | None = None) -> datetime | None:
    request = ReadZoneActivity(pipeline=zone.deploy(), partition=partition)
    return read_zone_activity(zone.clients, request).newest_event_at


def a_landing(zone: Zone, phase: Any) -> dict[str, Any]:
    return LandingStatus(phase=phase, pipeline=zone.pipeline.name, opened_at=NOW).to_dict()


def instance(zone: Zone) -> str:
    return landing_instance(zone.pipeline.name)


async def test_the_first_event_opens_a_landing_and_the_next_are_merged(zone: Zone) -> None:
    hub = TaskHub()
    event = zone.event("1.png", '"0x1"')
    assert await handle(zone, hub, event) == {"opened": 1}
    assert await handle(zone, hub, zone.event("2.png", "0x2")) == {"merged": 1}
    assert hub.started == [instance(zone)]
    request = LandingRequest.from_dict(hub.documents[instance(zone)]["input"])
    assert request == LandingRequest(pipeline=zone.pipeline.name, opened_by="event")
    assert hub.raised == []  # no wake-up: the landing has not read the newest event's time yet

    (entry,) = kept(zone, "1.png")
    assert entry == Entry(
        event_id=event.id,
        change="created",
        blob=zone.blob("1.png"),
        etag="0x1",
        event_time=event.event_time.isoformat() if event.event_time else "",
        decided_at=NOW.isoformat(),
        decision="opened",
        reason=f"opened {instance(zone)}",
    )


async def test_both_triggers_decide_alike(zone: Zone) -> None:
    hub = TaskHub()
    assert await handle(zone, hub, zone.message("1.png", "0x1")) == {"opened": 1}
    assert await handle(zone, hub, zone.event("2.png", "0x2")) == {"merged": 1}
    first, second = (kept(zone, path)[0] for path in ("1.png", "2.png"))
    assert (first.change, first.etag) == (second.change, "0x1")


async def test_a_block_of_events_is_one_landing_one_record_and_one_block(
    zone: Zone,
) -> None:
    hub = TaskHub()
    messages = [zone.message(f"{number}.png", f"0x{number}") for number in range(200)] * 5
    random.Random(20).shuffle(messages)
    with spy(RequestsTransport, "send") as requests:
        decisions = await handle(zone, hub, *messages)
    assert decisions == {"opened": 1, "merged": 999}
    assert hub.started == [instance(zone)]
    assert 0 < requests.call_count <= 0.01 * len(messages)


async def test_blocks_that_are_handled_at_the_same_time_keep_the_newest_event(zone: Zone) -> None:
    hub = TaskHub()
    hub.add(instance(zone), "landing", custom_status=a_landing(zone, "settling"))
    times = [NOW + number * SECOND for number in range(24)]
    random.Random(3).shuffle(times)
    await asyncio.gather(
        *(handle(zone, hub, zone.message("1.png", "0x1", time=time.isoformat())) for time in times)
    )
    assert newest_event(zone) == max(times)


async def test_an_event_that_the_last_listing_saw_opens_nothing(zone: Zone) -> None:
    """Otherwise late copies of events would open a landing for a batch that was trained on."""
    etag = zone.land("1.png")
    zone.close_batch(NOW)
    hub = TaskHub()
    late = [zone.message("1.png", etag, time=(NOW - 9 * SECOND).isoformat()) for _ in range(99)]
    assert await handle(zone, hub, *late) == {"late": 99}
    assert (hub.started, newest_event(zone)) == ([], None)
    assert "saw it" in kept(zone, "1.png")[0].reason

    news = zone.message("1.png", etag, time=(NOW + SECOND).isoformat())
    assert await handle(zone, hub, news) == {"opened": 1}


async def test_what_no_pipeline_takes_is_filtered(zone: Zone) -> None:
    hub = TaskHub()
    zone.rules("source", include=["*.png"])
    assert await handle(zone, hub, zone.event("notes.txt", "0x1")) == {"filtered": 1}
    assert "*.png" in kept(zone, "notes.txt")[0].reason

    elsewhere = "/blobServices/default/containers/landing/blobs/else/1.png"
    assert await handle(zone, hub, zone.event("", "0x1", subject=elsewhere)) == {"filtered": 1}
    folder = zone.event("7.png/", "0x1", data={"eTag": "0x1", "contentLength": 0})
    assert await handle(zone, hub, folder) == {"filtered": 1}
    assert hub.started == []


@pytest.mark.parametrize(("deletions", "decision"), [("ignore", "filtered"), ("retrain", "opened")])
async def test_a_deletion_counts_only_where_the_pipeline_wants_it(
    zone: Zone, deletions: str, decision: str
) -> None:
    zone.rules("source", deletions=deletions)
    event = zone.event("1.png", "", event_type="Microsoft.Storage.BlobDeleted", data={"api": "x"})
    assert await handle(zone, TaskHub(), event) == {decision: 1}


async def test_each_partition_is_a_landing_of_its_own(zone: Zone) -> None:
    zone.rules("source", partitions="date=%Y-%m-%d", batch="partition")
    hub = TaskHub()
    messages = [
        zone.message(f"date=2026-11-2{day}/{name}", "0x1")
        for day in (1, 2)
        for name in ("a.png", "b.png")
    ]
    marker = zone.message("date=2026-11-21/_SUCCESS", "0x2")
    outside = zone.message("readme.txt", "0x3")
    decisions = await handle(zone, hub, *messages, marker, outside)
    assert decisions == {"opened": 2, "merged": 3, "filtered": 1}
    name = zone.pipeline.name
    assert sorted(hub.started) == [f"landing-{name}_2026-11-21", f"landing-{name}_2026-11-22"]
    assert newest_event(zone, "2026-11-22") is not None
    assert newest_event(zone) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"topic": "/storageAccounts/another"}, "DataStorage"),
        ({"subject": None}, "names no blob"),
        ({"topic": None, "id": "../" * 400}, "not a storage account"),
    ],
)
async def test_what_cannot_be_understood_is_kept_as_rejected(
    zone: Zone, changes: dict[str, Any], words: str
) -> None:
    hub = TaskHub()
    assert await handle(zone, hub, zone.event("1.png", "0x1", **changes)) == {"rejected": 1}
    subject = changes.get("subject", zone.event("1.png", "").subject) or ""
    (entry,) = event_records.read_log(
        zone.clients.records, event_records.UNREADABLE, subject, since=NOW, until=NOW
    )
    assert words in entry.reason
    assert hub.started == []


@pytest.mark.parametrize("body", ["", "{", "[]", '{"specversion": "1.0"}', '{"id": 7}'])
async def test_a_message_that_is_not_an_event_does_not_affect_the_others(
    zone: Zone, body: str
) -> None:
    hub = TaskHub()
    decisions = await handle(zone, hub, queued(body), zone.message("1.png", "0x1"))
    assert decisions == {"rejected": 1, "opened": 1}


async def test_a_marker_cuts_the_wait_short(zone: Zone) -> None:
    hub = TaskHub()
    assert await handle(zone, hub, zone.event("1.png", "0x1")) == {"opened": 1}
    assert await handle(zone, hub, zone.event("_SUCCESS", "0x2")) == {"merged": 1}
    assert hub.raised == [(instance(zone), "wake_up")]


@pytest.mark.parametrize(
    ("phase", "runtime_status", "is_woken"),
    [
        ("closing", "Running", True),
        ("of another release", "Running", True),
        ("settling", "Pending", False),
        ("settling", "Suspended", False),
        ("training", "Running", False),
    ],
)
async def test_only_a_landing_that_may_not_read_again_is_woken(
    zone: Zone, phase: str, runtime_status: str, *, is_woken: bool
) -> None:
    hub = TaskHub()
    status = a_landing(zone, "settling") | {"phase": phase}
    hub.add(instance(zone), "landing", runtime_status, custom_status=status)
    assert await handle(zone, hub, zone.event("1.png", "0x1")) == {"merged": 1}
    assert hub.raised == [(instance(zone), "wake_up")] * is_woken


class WatchingHub(TaskHub):
    """Records the newest event's time in storage at each read of the landing's status."""

    def __init__(self, zone: Zone) -> None:
        super().__init__()
        self.zone = zone
        self.read: list[datetime | None] = []

    async def get_status(self, instance_id: str, *, show_input: bool = False) -> Any:
        self.read.append(newest_event(self.zone))
        return await super().get_status(instance_id, show_input=show_input)


async def test_the_newest_event_is_kept_before_the_landing_is_asked_for(zone: Zone) -> None:
    """Otherwise a landing could close in between, without reading the event or a wake-up."""
    hub = WatchingHub(zone)
    await handle(zone, hub, zone.event("1.png", "0x1", event_time=NOW))
    assert set(hub.read) == {NOW}


class EndingHub(TaskHub):
    """A hub whose landing ends before the event is raised, or before it handles the event."""

    def __init__(self, *, takes_the_event: bool) -> None:
        super().__init__()
        self.takes_the_event = takes_the_event

    async def raise_event(self, instance: str, event: str) -> None:
        self.documents[instance]["runtimeStatus"] = "Completed"
        if not self.takes_the_event:
            await super().raise_event(instance, event)  # raises, because the instance has ended


@pytest.mark.parametrize("takes_the_event", [False, True])
async def test_a_landing_that_ends_during_the_call_is_followed_by_another(
    zone: Zone, *, takes_the_event: bool
) -> None:
    hub = EndingHub(takes_the_event=takes_the_event)
    hub.add(instance(zone), "landing", custom_status=a_landing(zone, "closing"))
    assert await handle(zone, hub, zone.event("1.png", "0x1")) == {"opened": 1}
    assert hub.started == [instance(zone)]


async def test_another_trigger_may_start_the_landing_first(zone: Zone) -> None:
    hub = TaskHub()
    hub.add(instance(zone), "landing", custom_status=a_landing(zone, "settling"))
    hub.hidden_once.add(instance(zone))
    assert await handle(zone, hub, zone.event("1.png", "0x1")) == {"merged": 1}


async def test_a_crash_before_the_decisions_were_kept_decides_again(
    zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise ConnectionResetError

    hub, event = TaskHub(), zone.event("1.png", "0x1")
    with monkeypatch.context() as patch:
        patch.setattr(blob_created, "append_to_log", die)
        with pytest.raises(ConnectionResetError):
            await handle(zone, hub, event)
    assert hub.started == [instance(zone)]
    assert await handle(zone, hub, event) == {"merged": 1}
    assert Counter(entry.decision for entry in kept(zone, "1.png")) == {"merged": 1}
