from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.storage.blob import ContainerClient

from handlers.landing.batch_contents import keep_quarantine
from handlers.landing.event_records import advance_newest_event
from handlers.landing.holding import Pause, begin_resumption, pause
from handlers.landing.manifest_parts import parts_folder
from handlers.operate.reconciliation.landings import (
    GRACE,
    discard_abandoned_parts,
    partitions_to_land,
    read_zone_records,
)
from handlers.operate.reconciliation.rounds import Round
from handlers.platform import record_store
from orchestrations.contracts.landing import LandingPhase, LandingStatus
from orchestrations.contracts.training import RunInput
from orchestrations.names import batch_id, freezing_instance, landing_instance
from tests.fakes.durable_client import TaskHub
from tests.local.handlers.operate.reconciliation.scene import NOW, Scene, scene
from tests.local.handlers.zone_on_storage import Zone
from tests.unit.orchestrations.examples import DATASET, with_rules

__all__ = ["scene"]
pytestmark = pytest.mark.usefixtures("quiet_queues")


async def test_a_paused_zone_gets_no_landing_and_one_that_was_resumed_half_way_does(
    scene: Scene,
) -> None:
    scene.land("1.png")
    made = Pause(by="ada", reason="wrong upload", at=NOW)
    pause(scene.clients, scene.pipeline.name, made)
    assert (await scene.reconcile()).landings_started == []
    scene.hold(scene.freeze(NOW))
    # The resumption ends here, as if the process died: no landing was started.
    begin_resumption(scene.clients, scene.pipeline.name, at=NOW)
    assert scene.landing in (await scene.reconcile()).landings_started


async def test_a_zone_that_was_never_listed_gets_a_landing(scene: Scene) -> None:
    assert str(await scene.reconcile()) == "nothing to repair"
    scene.land("1.png")
    assert (await scene.reconcile()).landings_started == [scene.landing]
    assert scene.hub.documents[scene.landing]["input"]["opened_by"] == "reconciliation"
    assert (await scene.reconcile()).landings_started == []  # the landing is active


async def test_a_zone_with_an_event_that_no_listing_saw_gets_a_landing(scene: Scene) -> None:
    scene.close_batch(NOW)
    assert str(await scene.reconcile()) == "nothing to repair"
    advance_newest_event(scene.clients, scene.pipeline.name, None, NOW - timedelta(seconds=5))
    assert (await scene.reconcile()).landings_started == []
    advance_newest_event(scene.clients, scene.pipeline.name, None, NOW + timedelta(seconds=5))
    assert (await scene.reconcile()).landings_started == [scene.landing]


@pytest.mark.parametrize(
    ("hours", "is_due"),
    [([25], True), ([23], False), ([23, 25], False)],  # 23, 25: the older record is written last
)
async def test_a_zone_is_listed_daily_whether_there_was_an_event_or_not(
    scene: Scene, hours: list[float], *, is_due: bool
) -> None:
    for each in hours:
        scene.close_batch(NOW - timedelta(hours=each))
    assert (await scene.reconcile()).landings_started == [scene.landing] * is_due


async def test_a_marker_whose_event_was_lost_opens_a_landing(scene: Scene) -> None:
    scene.close_batch(NOW, marker_at=NOW - timedelta(hours=1))
    scene.land("_SUCCESS")
    assert (await scene.reconcile()).landings_started == [scene.landing]


@pytest.mark.parametrize("partition", [None, "2026-11-21"])
async def test_a_zone_of_which_files_were_refused_later_is_listed_again(
    scene: Scene, partition: str | None
) -> None:
    """No landing waited for that run: it went on by itself, or it was a later attempt."""
    if partition is not None:
        scene.rules("source", partitions="date=%Y-%m-%d", batch="partition")
    scene.land("1.png" if partition is None else f"date={partition}/1.png")
    before = datetime.now(UTC) - timedelta(seconds=5)
    dataset = scene.close_batch(before, partition=partition)
    assert (await scene.reconcile()).landings_started == []
    keep_quarantine(scene.clients, scene.pipeline.name, "run", "run", dataset, {})
    instance = landing_instance(scene.pipeline.name, partition)
    assert (await scene.reconcile()).landings_started == [instance]
    scene.hub.documents.clear()
    scene.close_batch(datetime.now(UTC) + timedelta(seconds=5), partition=partition)
    assert (await scene.reconcile()).landings_started == []


async def test_unchanged_zones_are_not_listed_and_cost_no_read_each(scene: Scene) -> None:
    scene.close_batch(NOW)
    marked = scene.pipeline
    unmarked = with_rules(marked, source={"marker": None})
    others = [
        unmarked.model_copy(update={"name": f"{marked.name}-{number}"}) for number in range(6)
    ]
    for each in others:
        scene.pipeline = each
        scene.close_batch(NOW)
        advance_newest_event(scene.clients, each.name, None, NOW - timedelta(hours=1))
    scene.pipeline = marked
    read = read_zone_records(scene.clients)
    known = {each.name for each in (marked, *others)}
    assert read.newest_events.keys() | read.last_batches.keys() == known

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("no zone has news: its records are not read one by one")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ContainerClient, "list_blobs", refuse)
        patch.setattr(record_store, "read", refuse)
        for each in (marked, *others):
            assert partitions_to_land(scene.clients, each, read, now=NOW) == []
    last = others[-1]
    advance_newest_event(scene.clients, last.name, None, NOW + timedelta(seconds=5))
    summary = await scene.reconcile(*others)
    assert summary.landings_started == [landing_instance(last.name)]


async def test_every_partition_that_was_never_listed_gets_a_landing(scene: Scene) -> None:
    scene.rules("source", partitions="date=%Y-%m-%d", batch="partition")
    for day in range(1, 7):
        scene.land(f"date=2026-11-0{day}/1.png")
    scene.close_batch(NOW, partition="2026-11-05", outcome="empty")
    scene.close_batch(NOW - timedelta(days=2), partition="2026-11-06", outcome="empty")
    scene.close_batch(
        NOW - timedelta(days=2), partition="2026-11-01", outcome="empty"
    )  # too old for the daily listing
    days = ("02", "03", "04", "06")
    assert (await scene.reconcile()).landings_started == [
        f"{scene.landing}_2026-11-{day}" for day in days
    ]


def claim(scene: Scene, *, age: timedelta = timedelta(0)) -> None:
    scene.claim(scene.request(age=age).dataset, batch_id(scene.landing, NOW))


@pytest.mark.parametrize("days", [0, 3])  # 3: the app was down for days
async def test_a_claim_whose_run_never_came_to_be_gets_it_once(scene: Scene, days: float) -> None:
    age = timedelta(days=days)
    claim(scene, age=age)
    assert (await scene.reconcile()).runs_started == [scene.run]
    started = RunInput.from_dict(scene.hub.documents[scene.run]["input"])
    assert started.request == scene.request(age=age)
    assert (await scene.reconcile()).runs_started == []


@pytest.mark.parametrize(
    ("told", "is_lost"),
    [(("training", NOW), False), (None, False), (("settling", NOW + timedelta(seconds=5)), True)],
)
async def test_a_claim_is_left_to_a_landing_that_is_still_on_it_and_not_in_a_later_batch(
    scene: Scene, told: tuple[LandingPhase, datetime] | None, *, is_lost: bool
) -> None:
    claim(scene)
    status = None
    if told is not None:
        phase, opened_at = told
        landing = LandingStatus(phase=phase, pipeline=scene.pipeline.name, opened_at=opened_at)
        status = landing.to_dict()
    scene.hub.add(scene.landing, "landing", custom_status=status)
    assert (await scene.reconcile()).runs_started == [scene.run] * is_lost


async def test_a_run_whose_instance_was_purged_is_not_started_again(scene: Scene) -> None:
    claim(scene)
    scene.add_job("Completed")
    assert (await scene.reconcile()).runs_started == []


async def test_an_old_claim_starts_no_run(scene: Scene) -> None:
    claim(scene, age=timedelta(days=31))
    assert (await scene.reconcile()).runs_started == []


async def test_a_claim_that_cannot_be_read_does_not_hide_the_others(scene: Scene) -> None:
    claim(scene)
    scene.claim(DATASET.model_copy(update={"version": "0000"}), "b")
    name = f"dataset-claims/{scene.pipeline.name}/0000.json"
    of_tomorrow = {"claim": {"schema_version": 2}, "request": {}}
    record_store.replace(scene.clients.records, name, of_tomorrow)
    summary = await scene.reconcile()
    assert summary.runs_started == [scene.run]
    assert summary.faults == [f"{name}: ValidationError"]


def leave_parts(zone: Zone, freeze: str) -> str:
    for name in ("plan.json", "aaaa"):
        folder = parts_folder(zone.pipeline.name, freeze)
        record_store.replace(zone.clients.records, folder + name, {})
    return freezing_instance(zone.pipeline.name, freeze)


def kept(zone: Zone) -> set[str]:
    names = zone.clients.records.list_blob_names(name_starts_with="freezing/")
    return {name.split("/")[2] for name in names}


@pytest.mark.parametrize(
    ("age", "left"), [(GRACE / 2, {"given-up", "dead", "live"}), (GRACE * 2, {"live"})]
)
async def test_the_parts_of_freezes_that_were_given_up_are_deleted_after_a_day(
    zone: Zone, age: timedelta, left: set[str]
) -> None:
    hub: Any = TaskHub()
    instances = {name: leave_parts(zone, name) for name in ("given-up", "dead", "live")}
    hub.add(instances["dead"], "freezing", "Terminated")
    hub.add(instances["live"], "freezing", "Running")
    gone = {"given-up", "dead", "live"} - left
    for expected in (gone, set[str]()):
        current = Round(zone.clients, hub, datetime.now(UTC) + age, time.monotonic, 0)
        await discard_abandoned_parts(current)
        found = set(current.summary.freezes_discarded)
        assert found == {instances[name] for name in expected}
    assert kept(zone) == left
