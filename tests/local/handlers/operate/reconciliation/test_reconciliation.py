from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.storage.blob import ContainerClient

from handlers.landing.batch_contents import keep_quarantine
from handlers.landing.event_records import advance_newest_event
from handlers.landing.holding import Pause, begin_resumption, pause
from handlers.notify import dead_letter_queue
from handlers.notify.dead_letter_queue import Rejected
from handlers.notify.outbox import parse_delivery
from handlers.operate.reconciliation import reconciliation, zones
from handlers.operate.reconciliation.reconciliation import (
    BUDGET_SECONDS,
    EVENT_QUEUES,
    PIPELINES_AT_ONCE,
    Summary,
    reconcile,
)
from handlers.operate.reconciliation.runs import RESTARTS
from handlers.operate.reconciliation.zones import partitions_to_land
from handlers.platform import message_outbox, record_store
from handlers.platform.bulkheads import Bulkhead
from handlers.platform.clients import Clients
from handlers.platform.records.run_index import list_runs
from handlers.platform.records.run_records import add_to_record, read_run_record
from handlers.platform.service_bus import NOTIFICATIONS, REJECTED_RUNS
from handlers.platform.settings import Settings
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.base import Failure
from orchestrations.contracts.landing import LandingPhase, LandingStatus
from orchestrations.contracts.runs import RunRequest, RunState
from orchestrations.contracts.training import RunInput, RunRecord, RunStep
from orchestrations.names import batch_id, landing_instance, run_id
from tests.local.handlers.world_with_messaging import OF_QUEUES, Namespace, World
from tests.local.handlers.zone_on_storage import Zone
from tests.unit.handlers.azure_ml_fake import Workspace, a_job
from tests.unit.handlers.durable_fake import TaskHub
from tests.unit.orchestrations.examples import DATASET, PIPELINE, run_status, with_rules

NOW = datetime.now(UTC)
_NUMBERS = itertools.count()

pytestmark = pytest.mark.usefixtures("quiet_queues")


@dataclass
class Scene(Zone):
    """A new pipeline with a zone, records and queues; task hub and workspace are in memory."""

    hub: TaskHub
    workspace: Workspace

    async def reconcile(
        self, *others: Pipeline, monotonic: Callable[[], float] = time.monotonic
    ) -> Summary:
        pipelines = {each.name: each for each in (self.pipeline, *others)}
        starter: Any = self.hub
        return await reconcile(self.clients, pipelines, starter, now=NOW, monotonic=monotonic)

    def request(self, *, age: timedelta = timedelta(0)) -> RunRequest:
        dataset = DATASET.model_copy(update={"frozen_at": NOW - age})
        return RunRequest(pipeline=self.pipeline, dataset=dataset, attempt=1)

    @property
    def landing(self) -> str:
        return landing_instance(self.pipeline.name)

    @property
    def run(self) -> str:
        return run_id(self.pipeline.name, DATASET.version, 1)

    def add_run(
        self, runtime_status: str, state: RunState, *, run: str | None = None, **more: Any
    ) -> None:
        run = run or self.run
        told = run_status(run, state, NOW, job=run)
        self.hub.add(run, "retraining", runtime_status, custom_status=told.to_dict(), **more)

    def add_job(self, status: str, *, run: str | None = None) -> None:
        self.workspace.jobs.store[(run or self.run,)] = a_job(run or self.run, status, {})


@pytest.fixture
def scene(world: World, tmp_path: Path) -> Iterator[Scene]:
    number = next(_NUMBERS)
    name = f"scene-{number}"
    settings = {
        **world.clients.settings.values,
        "RECORDS_CONTAINER": f"records-{number}",
        "PIPELINES_FOLDER": str(tmp_path),
    }
    clients, workspace = Clients(Settings(settings)), Workspace()
    world.lend_to(clients)
    vars(clients).update(ml=workspace, workspace_blobs=clients.blobs)
    clients.records.create_container()
    rules = with_rules(PIPELINE, source={"prefix": f"{name}/"}, notify={"event_grid": False})
    pipeline = rules.model_copy(update={"name": name})
    yield Scene(clients, pipeline, TaskHub(NOW - timedelta(hours=1)), workspace)
    clients.records.delete_container()


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
    read = zones.read_zone_records(scene.clients)
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


async def test_zones_are_checked_side_by_side_and_a_fault_of_one_harms_no_other(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [
        scene.pipeline.model_copy(update={"name": f"{scene.pipeline.name}-{number}"})
        for number in range(3 * PIPELINES_AT_ONCE)
    ]
    together = threading.Barrier(PIPELINES_AT_ONCE)

    def due(_clients: object, pipeline: Pipeline, *_: object, **__: object) -> list[None]:
        if pipeline == scene.pipeline:
            raise LookupError("the zone's container is gone")
        together.wait(30)  # passes when this many pipelines are checked in parallel
        return [None]

    monkeypatch.setattr(reconciliation, "partitions_to_land", due)
    summary = await scene.reconcile(*others)
    assert summary.faults == [f"zone of {scene.pipeline.name}: LookupError"]
    assert "LookupError" in str(summary)
    assert sorted(summary.landings_started) == sorted(
        landing_instance(each.name) for each in others
    )


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


@pytest.mark.parametrize(("status", "times"), [("Completed", 1), ("Failed", 1), ("Running", 0)])
async def test_a_run_whose_job_has_ended_is_woken(scene: Scene, status: str, times: int) -> None:
    scene.add_run("Running", "running")
    scene.add_job(status)
    summary = await scene.reconcile()
    assert summary.runs_woken == [scene.run] * times
    assert scene.hub.raised == [(scene.run, "wake_up")] * times
    assert summary.faults == []


async def test_a_claim_that_cannot_be_read_does_not_hide_the_others(scene: Scene) -> None:
    claim(scene)
    scene.claim(DATASET.model_copy(update={"version": "0000"}), "b")
    name = f"dataset-claims/{scene.pipeline.name}/0000.json"
    of_tomorrow = {"claim": {"schema_version": 2}, "request": {}}
    record_store.replace(scene.clients.records, name, of_tomorrow)
    summary = await scene.reconcile()
    assert summary.runs_started == [scene.run]
    assert summary.faults == [f"{name}: ValidationError"]


async def test_runs_beyond_a_page_of_the_task_hub_are_looked_at(scene: Scene) -> None:
    for number in range(250):  # their ids come first, and they need no repair
        started = NOW - timedelta(hours=2, seconds=number)
        scene.add_run("Running", "registering", run=f"aaa-{number:016x}-1", created=started)
    scene.add_run("Running", "running")
    scene.add_job("Completed")
    assert (await scene.reconcile()).runs_woken == [scene.run]


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
    last = ("nodes", "index of runs", "endpoints", "parts", "instances", "records", "faults")
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


async def test_a_run_that_broke_is_closed_once(
    scene: Scene, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = RunInput(request=scene.request()).to_dict()
    scene.add_run("Terminated", "running", document=document, output="by hand")
    scene.add_job("Running")

    def die(*_: object) -> bool:
        raise KeyboardInterrupt

    # The process dies before it records the end of the repair; the next round repeats it.
    with monkeypatch.context() as patch:
        patch.setattr(record_store, "create", die)
        with pytest.raises(KeyboardInterrupt):
            await scene.reconcile()
    assert (await scene.reconcile()).runs_closed == [scene.run]
    assert (await scene.reconcile()).runs_closed == []

    assert set(scene.workspace.jobs.cancelled) == {scene.run}
    (letter,) = namespace.take_present(REJECTED_RUNS, dead=True)
    assert letter.message_id == scene.run
    assert "terminated: by hand" in (letter.dead_letter_error_description or "")
    told = [str(each.message_id) for each in namespace.take(NOTIFICATIONS)]
    assert [each for each in told if each.startswith(scene.run)] == [
        f"{scene.run}:failed:service_bus"
    ]


async def test_a_run_whose_instance_failed_goes_on_with_its_job_and_is_closed_at_last(
    scene: Scene, namespace: Namespace
) -> None:
    since = NOW - timedelta(hours=3)
    document = RunInput(request=scene.request()).to_dict()
    shown = run_status(scene.run, "running", since, job=scene.run).to_dict()
    scene.add_job("Running")
    for number in range(RESTARTS):
        scene.hub.add(
            scene.run, "retraining", "Failed", custom_status=shown, document=document, output="why"
        )
        summary = await scene.reconcile()
        assert (summary.runs_started, summary.runs_closed) == ([scene.run], [])
        assert scene.hub.started == [scene.run] * (number + 1)
        document = scene.hub.documents[scene.run]["input"]
        waiting = RunInput.from_dict(document).waiting
        assert waiting is not None
        assert (waiting.job.name, waiting.state_since) == (scene.run, since), "its deadline stands"
    assert scene.workspace.jobs.cancelled == []
    scene.hub.add(
        scene.run, "retraining", "Failed", custom_status=shown, document=document, output="why"
    )
    assert (await scene.reconcile()).runs_closed == [scene.run]
    assert scene.workspace.jobs.cancelled == [scene.run]
    (letter,) = namespace.take_present(REJECTED_RUNS, dead=True)
    assert "failed: why" in (letter.dead_letter_error_description or "")


async def test_a_failed_run_without_a_job_begins_again_and_one_that_was_ending_ends(
    scene: Scene,
) -> None:
    document = RunInput(request=scene.request()).to_dict()
    scene.add_run("Failed", "submitting", document=document)
    assert (await scene.reconcile()).runs_started == [scene.run]
    assert scene.hub.documents[scene.run]["input"] == document
    scene.add_job("Canceled")
    failure = Failure(type="DeadlineExceeded", message="too long", permanent=False)
    shown = run_status(scene.run, "ending", NOW, error=failure).to_dict()
    scene.hub.add(scene.run, "retraining", "Failed", custom_status=shown, document=document)
    assert (await scene.reconcile()).runs_started == [scene.run]
    assert RunInput.from_dict(scene.hub.documents[scene.run]["input"]).ending == failure


async def test_restarts_of_earlier_days_do_not_count(scene: Scene) -> None:
    earlier = [(NOW - timedelta(days=2)).isoformat()] * RESTARTS
    record_store.replace(scene.clients.records, f"runs/{scene.run}/restarts.json", earlier)
    scene.add_run("Failed", "submitting", document=RunInput(request=scene.request()).to_dict())
    assert (await scene.reconcile()).runs_started == [scene.run]


async def test_a_run_of_a_newer_release_is_left_to_a_worker_that_knows_it(
    scene: Scene, namespace: Namespace
) -> None:
    """An older worker fails the instance, whose input it cannot read, and may reconcile it."""
    document = RunInput(request=scene.request()).to_dict() | {"added_since": "x"}
    shown = run_status(scene.run, "running", NOW, job=scene.run).to_dict() | {"added_since": "x"}
    scene.add_job("Running")

    def fail() -> None:
        output = "Orchestrator function 'retraining' failed: added_since"
        scene.hub.add(
            scene.run, "retraining", "Failed", custom_status=shown, document=document, output=output
        )

    for _ in range(RESTARTS):
        fail()
        summary = await scene.reconcile()
        assert (summary.runs_started, summary.faults) == ([scene.run], [])
        assert scene.hub.documents[scene.run]["input"] == document
    fail()
    summary = await scene.reconcile()
    assert (summary.runs_closed, summary.faults) == ([scene.run], [])
    (letter,) = namespace.take_present(REJECTED_RUNS, dead=True)
    assert "added_since" in (letter.dead_letter_error_description or "")


@pytest.mark.parametrize(
    ("state", "kind"),
    [("succeeded", "succeeded"), ("rejected", "failed"), ("retrying", "retrying")],
)
async def test_a_run_that_broke_before_its_notification_is_notified_once(
    scene: Scene, namespace: Namespace, state: RunState, kind: str
) -> None:
    scene.add_run("Failed", state, document=RunInput(request=scene.request()).to_dict())
    assert (await scene.reconcile()).runs_closed == [scene.run]
    assert (await scene.reconcile()).runs_closed == []
    assert scene.workspace.jobs.cancelled == []
    assert namespace.peek(REJECTED_RUNS) == []
    told = namespace.take(NOTIFICATIONS)
    (message,) = [each for each in told if str(each.message_id).startswith(scene.run)]
    assert message.message_id == f"{scene.run}:{kind}:service_bus"
    assert parse_delivery(str(message)).notification.status.state == state


async def test_a_run_that_was_terminated_within_a_second_of_its_last_change_ends_in_the_index(
    scene: Scene,
) -> None:
    changed_at = NOW.replace(microsecond=700_000)
    status = run_status(scene.run, "running", changed_at)
    steps = (RunStep(state="running", began_at=changed_at),)
    add_to_record(scene.clients, RunRecord(status=status, started_at=changed_at, steps=steps))
    # The task hub's times have whole seconds.
    updated_at = changed_at.replace(microsecond=0)
    document = RunInput(request=scene.request()).to_dict()
    scene.hub.add(
        scene.run,
        "retraining",
        "Terminated",
        custom_status=status.to_dict(),
        document=document,
        created=updated_at,
    )
    await scene.reconcile()
    assert (await scene.reconcile()).runs_indexed == []
    assert not list_runs(scene.clients.records, states=["running"], limit=9).runs
    (run,) = list_runs(scene.clients.records, states=["failed"], limit=9).runs
    assert run["id"] == scene.run
    record = read_run_record(scene.clients, scene.run)
    assert record is not None
    assert [step.state for step in record.steps] == ["running", "failed"]
    assert record.steps[-1].began_at == changed_at, "no state ends before it began"


async def test_a_run_that_was_handed_over_and_whose_message_was_lost_is_started_again(
    scene: Scene,
) -> None:
    status = run_status(scene.run, "waiting_for_nodes", NOW - timedelta(minutes=5))
    add_to_record(scene.clients, RunRecord(status=status, started_at=status.since))
    given = RunInput(request=scene.request()).to_dict()
    scene.add_run("Completed", "waiting_for_nodes", document=given)
    assert (await scene.reconcile()).runs_indexed == []
    assert scene.hub.started == [scene.run]
    assert RunInput.from_dict(scene.hub.documents[scene.run]["input"]).request == scene.request()
    await scene.reconcile()
    assert scene.hub.started == [scene.run]


@pytest.mark.parametrize(
    ("runtime_status", "state"), [("Completed", "succeeded"), (None, "failed"), ("Running", None)]
)
async def test_an_end_that_is_missing_in_the_index_is_added(
    scene: Scene, runtime_status: str | None, state: RunState | None
) -> None:
    status = run_status(scene.run, "queued", NOW - timedelta(minutes=5))
    add_to_record(scene.clients, RunRecord(status=status, started_at=status.since))
    if runtime_status is not None:
        scene.add_run(runtime_status, state or "queued")
    for expected in ([scene.run] if state else [], []):
        assert (await scene.reconcile()).runs_indexed == expected
    unfinished = list_runs(scene.clients.records, states=["queued"], limit=9).runs
    assert len(unfinished) == (state is None)
    if state is not None:
        (run,) = list_runs(scene.clients.records, states=[state], limit=9).runs
        assert run["id"] == scene.run


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
