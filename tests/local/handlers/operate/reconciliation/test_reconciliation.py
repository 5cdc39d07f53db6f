from __future__ import annotations

import itertools
import threading
from datetime import timedelta

import pytest

from handlers.notify import dead_letter_queue
from handlers.notify.dead_letter_queue import Rejected
from handlers.operate.reconciliation import landings, reconciliation
from handlers.operate.reconciliation.reconciliation import EVENT_QUEUES
from handlers.operate.reconciliation.rounds import BUDGET_SECONDS, PIPELINES_AT_ONCE
from handlers.platform import message_outbox
from handlers.platform.bulkheads import Bulkhead
from handlers.platform.clients import Clients
from handlers.platform.service_bus import REJECTED_RUNS
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.names import landing_instance
from tests.local.handlers.operate.reconciliation.scene import NOW, Scene, scene
from tests.local.handlers.world_with_messaging import OF_QUEUES, Namespace

__all__ = ["scene"]
pytestmark = pytest.mark.usefixtures("quiet_queues")


async def test_pipelines_are_checked_side_by_side_and_a_fault_of_one_harms_no_other(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.rules("dataset", freeze="copy")
    others = [
        scene.pipeline.model_copy(update={"name": f"{scene.pipeline.name}-{number}"})
        for number in range(3 * PIPELINES_AT_ONCE)
    ]
    together, copying = (threading.Barrier(PIPELINES_AT_ONCE) for _ in range(2))

    def due(_clients: object, pipeline: Pipeline, *_: object, **__: object) -> list[None]:
        if pipeline == scene.pipeline:
            raise LookupError("the zone's container is gone")
        together.wait(30)  # passes when this many pipelines are checked in parallel
        return [None]

    def delete(_clients: object, pipeline: Pipeline, **_: object) -> int:
        if pipeline != scene.pipeline:
            copying.wait(30)
        return 1

    monkeypatch.setattr(landings, "partitions_to_land", due)
    monkeypatch.setattr(reconciliation, "delete_unneeded_copies", delete)
    summary = await scene.reconcile(*others)
    assert summary.faults == [f"zone of {scene.pipeline.name}: LookupError"]
    assert "LookupError" in str(summary)
    assert summary.copies_deleted == 1 + len(others)
    assert sorted(summary.landings_started) == sorted(
        landing_instance(each.name) for each in others
    )


async def test_a_round_ends_in_time_and_the_longest_silent_runs_come_first(scene: Scene) -> None:
    runs = [f"{scene.pipeline.name}-{number:016x}-1" for number in range(8)]
    for number, run in enumerate(runs):
        scene.add_job("Completed", run=run)
        silent_since = NOW - timedelta(minutes=(number * 3) % 8 + 1)
        scene.add_run("Running", "running", run=run, created=silent_since)

    seconds = itertools.count(step=BUDGET_SECONDS / 10)

    def monotonic() -> float:  # every step takes a tenth of the budget
        return next(seconds)

    summary = await scene.reconcile(monotonic=monotonic)
    by_silence = sorted(runs, key=lambda run: scene.hub.documents[run]["lastUpdatedTime"])
    assert summary.runs_woken == by_silence[: len(summary.runs_woken)]
    assert 0 < len(summary.runs_woken) < len(runs)
    before = ("nodes", "index of runs", "endpoints", "promotions", "requests to forget")
    last = (*before, "parts", "instances", "records", "faults")
    after_the_runs = len(last)
    assert summary.left_for_later == len(runs) - len(summary.runs_woken) + after_the_runs
    assert summary.faults == []


async def test_messages_that_were_left_halfway_are_dead_lettered(
    scene: Scene, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in OF_QUEUES:
        monkeypatch.setattr(reconciliation, name, getattr(dead_letter_queue, name))
    left = Rejected(message_id="half-way", kind="run", body="{}", reason="r", description="d")
    scene.clients.message_queues.send(REJECTED_RUNS, left.to_message())
    summary = await scene.reconcile()
    assert (summary.messages_dead_lettered, summary.faults) == (1, [])
    (letter,) = namespace.take_present(REJECTED_RUNS, dead=True)
    assert letter.message_id == "half-way"


async def test_a_service_bus_that_hangs_costs_its_steps_and_no_others(
    scene: Scene, hung_bus: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in OF_QUEUES:
        monkeypatch.setattr(reconciliation, name, getattr(dead_letter_queue, name))
    bus = Bulkhead("Service Bus", threads=12, limit_seconds=0.2)
    monkeypatch.setattr(reconciliation, "SERVICE_BUS", bus)
    monkeypatch.setattr(message_outbox, "SEND_LIMIT_SECONDS", 0.2)
    vars(scene.clients).update(
        service_bus=hung_bus.service_bus, message_queues=hung_bus.message_queues
    )
    scene.clients.records.upload_blob(
        "outbox/ops-alerts/m.json", '{"message_id": "m", "body": "{}"}'
    )
    scene.add_run("Running", "running")
    scene.add_job("Completed")
    summary = await scene.reconcile()
    assert summary.runs_woken == [scene.run]
    assert summary.faults == [
        "outbox of ops-alerts: Unavailable",
        "dead letters: sweep: Unavailable",
        "dead letters: collect retries run: Unavailable",
        "dead letters: collect notifications delivery: Unavailable",
        *(f"dead letters: give_back {queue}: Unavailable" for queue in EVENT_QUEUES),
    ]
