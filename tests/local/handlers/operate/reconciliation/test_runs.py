from __future__ import annotations

from datetime import timedelta

import pytest

from handlers.notify.outbox import parse_delivery
from handlers.operate.reconciliation.runs import RESTARTS
from handlers.platform import record_store
from handlers.platform.run_index import list_runs
from handlers.platform.run_records import add_to_record, read_run_record
from handlers.platform.service_bus import NOTIFICATIONS, REJECTED_RUNS
from orchestrations.contracts.base import Failure
from orchestrations.contracts.run_states import RunState
from orchestrations.contracts.training import RunInput, RunRecord, RunStep
from tests.local.handlers.operate.reconciliation.scene import NOW, Scene, scene
from tests.local.handlers.world_with_messaging import Namespace
from tests.unit.orchestrations.examples import run_status

__all__ = ["scene"]
pytestmark = pytest.mark.usefixtures("quiet_queues")


@pytest.mark.parametrize(("status", "times"), [("Completed", 1), ("Failed", 1), ("Running", 0)])
async def test_a_run_whose_job_has_ended_is_woken(scene: Scene, status: str, times: int) -> None:
    scene.add_run("Running", "running")
    scene.add_job(status)
    summary = await scene.reconcile()
    assert summary.runs_woken == [scene.run] * times
    assert scene.hub.raised == [(scene.run, "wake_up")] * times
    assert summary.faults == []


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
