from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.functions import EventGridEvent

from handlers.configuration import record_store
from handlers.landing_zone import event_log
from handlers.landing_zone.event_log import Decision, Entry
from handlers.triggers import blob_created
from handlers.triggers.blob_created import handle_blob_event
from orchestrations.contracts.landing import LandingRequest, LandingStatus
from orchestrations.names import landing_instance
from tests.local.handlers.zone_on_storage import Zone
from tests.unit.handlers.durable_fake import TaskHub

NOW = datetime.now(UTC)
AT_ONCE = 32


async def handle(zone: Zone, hub: TaskHub, event: EventGridEvent) -> Decision:
    starter: Any = hub
    pipelines = {zone.pipeline.name: zone.pipeline}
    return await handle_blob_event(zone.clients, pipelines, starter, event, now=NOW)


async def handle_all(
    zone: Zone, hub: TaskHub, events: Iterable[EventGridEvent]
) -> Counter[Decision]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(event: EventGridEvent) -> Decision:
        async with gate:
            return await handle(zone, hub, event)

    return Counter(await asyncio.gather(*map(one, events)))


def kept(zone: Zone, path: str) -> list[Entry]:
    name = event_log.page_name(zone.pipeline.name, "landing", zone.blob(path))
    return list(event_log.read_page(zone.clients.records, name).entries)


def a_landing(zone: Zone, phase: Any) -> dict[str, Any]:
    return LandingStatus(phase=phase, pipeline=zone.pipeline.name, opened_at=NOW).to_dict()


def instance(zone: Zone) -> str:
    return landing_instance(zone.pipeline.name)


async def test_the_first_event_opens_a_landing_and_the_next_are_merged(zone: Zone) -> None:
    hub = TaskHub()
    event = zone.event("1.png", '"0x1"', sequencer=7)
    assert await handle(zone, hub, event) == "started"
    assert await handle(zone, hub, zone.event("2.png", "0x2")) == "merged"
    assert hub.started == [instance(zone)]
    request = LandingRequest.from_dict(hub.documents[instance(zone)]["input"])
    assert request == LandingRequest(pipeline=zone.pipeline, opened_by="event")
    assert hub.raised == []  # the landing has a look of its own still to come

    (entry,) = kept(zone, "1.png")
    assert entry == Entry(
        event_id=event.id,
        etag="0x1",
        sequencer=f"{7:064x}",
        size=4,
        event_time=event.event_time.isoformat() if event.event_time else "",
        decided_at=NOW.isoformat(),
        decision="started",
        reason=f"opened {instance(zone)}",
    )


async def test_a_copy_is_a_duplicate_and_a_late_event_of_an_older_write_superseded(
    zone: Zone,
) -> None:
    hub = TaskHub()
    newer = zone.event("1.png", "0x2", sequencer=2)
    decisions = [
        await handle(zone, hub, event)
        for event in (newer, newer, zone.event("1.png", "0x1", sequencer=1))
    ]
    assert decisions == ["started", "duplicate", "superseded"]
    assert [entry.decision for entry in kept(zone, "1.png")] == decisions
    assert await handle(zone, hub, zone.event("1.png", "0x3", sequencer=3)) == "merged"


async def test_what_no_pipeline_takes_is_filtered(zone: Zone) -> None:
    hub = TaskHub()
    source = zone.pipeline.source.model_copy(update={"include": ["*.png"]})
    zone.pipeline = zone.pipeline.model_copy(update={"source": source})
    assert await handle(zone, hub, zone.event("notes.txt", "0x1")) == "filtered"
    assert "*.png" in kept(zone, "notes.txt")[0].reason

    elsewhere = "/blobServices/default/containers/landing/blobs/else/1.png"
    assert await handle(zone, hub, zone.event("", "0x1", subject=elsewhere)) == "filtered"
    assert hub.started == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"topic": "/storageAccounts/another"}, "DataStorage"),
        ({"subject": None}, "names no blob"),
        ({"data": None}, "no object"),
        ({"event_type": "Microsoft.Storage.BlobDeleted"}, "BlobDeleted"),
        ({"topic": None, "id": "../" * 400}, "no storage account"),
    ],
)
async def test_what_cannot_be_understood_is_kept_as_rejected(
    zone: Zone, changes: dict[str, Any], words: str
) -> None:
    hub = TaskHub()
    event = zone.event("1.png", "0x1", **changes)
    for _ in range(2):
        assert await handle(zone, hub, event) == "rejected"
    (document,) = record_store.read_all(zone.clients.records, "ledger/_rejected/")
    assert document["event_id"] == event.id
    assert words in document["reason"]
    assert hub.started == []


async def test_a_marker_cuts_the_wait_short(zone: Zone) -> None:
    hub = TaskHub()
    assert await handle(zone, hub, zone.event("1.png", "0x1")) == "started"
    assert await handle(zone, hub, zone.event("_SUCCESS", "0x2")) == "merged"
    assert hub.raised == [(instance(zone), "wake_up")]


@pytest.mark.parametrize("status", ["closing", "unknown"])
async def test_a_landing_that_may_look_no_more_is_told(zone: Zone, status: str) -> None:
    hub = TaskHub()
    told = a_landing(zone, "closing") if status == "closing" else {"of": "another release"}
    hub.add(instance(zone), "landing", custom_status=told)
    assert await handle(zone, hub, zone.event("1.png", "0x1")) == "merged"
    assert hub.raised == [(instance(zone), "wake_up")]


@pytest.mark.parametrize("phase", ["settling", "training"])
@pytest.mark.parametrize("runtime_status", ["Pending", "Running", "Suspended"])
async def test_a_landing_that_will_look_anyway_is_left_alone(
    zone: Zone, phase: str, runtime_status: str
) -> None:
    hub = TaskHub()
    hub.add(instance(zone), "landing", runtime_status, custom_status=a_landing(zone, phase))
    assert await handle(zone, hub, zone.event("1.png", "0x1")) == "merged"
    assert hub.raised == []


class EndingHub(TaskHub):
    """The landing ends between the look at it and the word to it, or with the word untaken."""

    def __init__(self, *, takes_the_word: bool) -> None:
        super().__init__()
        self.takes_the_word = takes_the_word

    async def raise_event(self, instance: str, event: str) -> None:
        if self.takes_the_word:
            await super().raise_event(instance, event)
        self.documents[instance]["runtimeStatus"] = "Completed"
        if not self.takes_the_word:
            await super().raise_event(instance, event)


@pytest.mark.parametrize("takes_the_word", [False, True])
async def test_a_landing_that_ends_in_this_very_moment_is_followed_by_another(
    zone: Zone, *, takes_the_word: bool
) -> None:
    hub = EndingHub(takes_the_word=takes_the_word)
    hub.add(instance(zone), "landing", custom_status=a_landing(zone, "closing"))
    assert await handle(zone, hub, zone.event("1.png", "0x1")) == "started"
    assert hub.started == [instance(zone)]


async def test_somebody_else_may_start_the_landing_first(zone: Zone) -> None:
    hub = TaskHub()
    hub.add(instance(zone), "landing", custom_status=a_landing(zone, "settling"))
    hub.hidden_once.add(instance(zone))
    assert await handle(zone, hub, zone.event("1.png", "0x1")) == "merged"


async def test_a_crash_before_the_decision_was_kept_decides_again(
    zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    hub, event = TaskHub(), zone.event("1.png", "0x1")
    with monkeypatch.context() as patch:
        patch.setattr(blob_created.event_log, "append", die)
        with pytest.raises(KeyboardInterrupt):
            await handle(zone, hub, event)
    assert hub.started == [instance(zone)]
    assert await handle(zone, hub, event) == "merged"
    assert await handle(zone, hub, event) == "duplicate"


async def test_of_copies_that_are_handled_at_the_same_time_one_counts(zone: Zone) -> None:
    hub, event = TaskHub(), zone.event("1.png", "0x1")
    counts = await handle_all(zone, hub, [event] * 20)
    assert counts["started"] + counts["merged"] == 1
    assert counts["duplicate"] == 19
    assert hub.started == [instance(zone)]
    decisions = Counter(entry.decision for entry in kept(zone, "1.png"))
    assert decisions == counts


async def test_thirty_events_in_twenty_copies_each_count_once(zone: Zone) -> None:
    hub = TaskHub()
    events = [zone.event(f"{number}.png", f"0x{number}") for number in range(30)] * 20
    random.Random(20).shuffle(events)
    counts = await handle_all(zone, hub, events)
    assert counts["started"] + counts["merged"] == 30
    assert counts["duplicate"] == 570
    assert hub.started == [instance(zone)]
    for number in range(30):
        decisions = Counter(entry.decision for entry in kept(zone, f"{number}.png"))
        assert decisions["started"] + decisions["merged"] == 1
        assert decisions["duplicate"] == 19
