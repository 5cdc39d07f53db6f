from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from handlers.landing.comparing import compare_batch
from handlers.landing.hold_records import read_held
from handlers.landing.pauses import read_pause, zones_to_resume
from handlers.operate.api.pausing import pause_pipeline, resume_pipeline
from handlers.operate.api.requests import Answer
from handlers.platform import record_store
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.landing import CompareBatch, HoldReason
from orchestrations.names import landing_instance
from tests.local.handlers.zone_on_storage import Zone
from tests.unit.handlers.asking import ask
from tests.unit.handlers.durable_fake import TaskHub


async def pause(zone: Zone, reason: str = "wrong upload", by: str = "ada") -> Answer:
    body = json.dumps({"by": by, "reason": reason}).encode()
    return await ask(
        pause_pipeline, zone.clients, None, zone.pipeline, name=zone.pipeline.name, body=body
    )


async def resume(zone: Zone, hub: TaskHub) -> Answer:
    return await ask(
        resume_pipeline,
        zone.clients,
        hub,
        zone.pipeline,
        name=zone.pipeline.name,
        headers={"X-MS-CLIENT-PRINCIPAL-NAME": "bob"},
    )


def hold(zone: Zone, reason: HoldReason = "paused") -> Dataset:
    """Do the orchestrator's steps for a batch that is held."""
    zone.land("1.png")
    return zone.hold(zone.close_batch(outcome="held"), reason)


def why_paused(zone: Zone) -> str | None:
    request = CompareBatch(pipeline=zone.pipeline.name, dataset=zone.freeze())
    return compare_batch(zone.clients, request).paused


def soon() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=2)


async def test_a_pause_is_seen_by_landings_and_the_first_one_stays(zone: Zone) -> None:
    zone.land("1.png")
    assert why_paused(zone) is None
    first = await pause(zone)
    assert (first.status, first.document["changed"]) == (200, True)
    assert str(why_paused(zone)).startswith("paused by ada since 20")
    again = await pause(zone, reason="another", by="eve")
    assert (again.document["changed"], again.document["paused"]["by"]) == (False, "ada")
    assert (await pause(zone, reason="")).status == 400


async def test_what_was_held_is_landed_again_after_the_pause(zone: Zone) -> None:
    await pause(zone)
    dataset, hub = hold(zone), TaskHub()
    ended = await resume(zone, hub)
    landing = landing_instance(zone.pipeline.name)
    assert ended.document == {"paused": None, "changed": True, "landings": [landing]}
    assert hub.started == [landing]
    assert why_paused(zone) is None
    # Until it is listed again, reconciliation asks for it again.
    assert zones_to_resume(zone.clients, zone.pipeline.name) == [None]
    zone.close_batch(soon())
    assert zones_to_resume(zone.clients, zone.pipeline.name) == []
    assert read_held(zone.clients, zone.pipeline.name, dataset) is None
    assert record_store.read(zone.clients.records, f"paused/{zone.pipeline.name}.json") is None
    assert (await resume(zone, hub)).document["changed"] is False


async def test_a_batch_that_is_held_for_another_reason_since_stays_held(zone: Zone) -> None:
    await pause(zone)
    hold(zone)
    await resume(zone, TaskHub())
    dataset = hold(zone, "shrunk")
    zone.close_batch(soon(), outcome="held")
    assert zones_to_resume(zone.clients, zone.pipeline.name) == []
    held = read_held(zone.clients, zone.pipeline.name, dataset)
    assert held is not None
    assert held.reason == "shrunk"


async def test_a_pause_during_a_resumption_is_a_pause(zone: Zone) -> None:
    await pause(zone)
    hold(zone)
    await resume(zone, TaskHub())
    assert (await pause(zone, by="eve")).document["changed"] is True
    in_force = read_pause(zone.clients, zone.pipeline.name)
    assert in_force is not None
    assert in_force.by == "eve"
    assert zones_to_resume(zone.clients, zone.pipeline.name) == []


async def test_who_paused_and_resumed_is_kept(zone: Zone) -> None:
    await pause(zone)
    await resume(zone, TaskHub())
    kept = sorted(
        record_store.read_all(zone.clients.records, "actions/"), key=lambda each: each["at"]
    )
    assert [(each["action"], each["by"], each["reason"]) for each in kept] == [
        ("pause", "ada", "wrong upload"),
        ("resume", "bob", "no reason was given"),
    ]
