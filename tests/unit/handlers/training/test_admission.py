"""A run requests nodes, holds them and returns them; records and Azure ML are in memory."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from handlers.operate.job_events import parse_job_event
from handlers.operate.reconciliation.runs import known_runs, reconcile_nodes
from handlers.platform.configuration.pipeline_files import load_queues
from handlers.platform.event_envelope import from_message
from handlers.training.admission import RECORD, change_admission, request_nodes, return_nodes
from orchestrations.configuration.pipeline import ComputeOption
from orchestrations.contracts.capacity import (
    Admission,
    Admitted,
    Refusal,
    RequestNodes,
    ReturnNodes,
)
from orchestrations.contracts.run_states import RunState
from orchestrations.contracts.runs import CancelRequest, RunStatus
from orchestrations.contracts.training import RunRecord, RunStep
from orchestrations.errors import InvalidQueues, QuotaExceeded
from orchestrations.training import accounts
from tests.fakes.azure_ml import World, a_job, make_world
from tests.fakes.durable_client import TaskHub
from tests.unit.orchestrations.examples import run_status

GPU = ComputeOption(cluster="gpu", size="Standard_NC6s_v3", nodes=2)
SPOT = ComputeOption(cluster="spot", size="Standard_NC6s_v3", priority="low_priority", nodes=2)
STARTED = datetime(2026, 11, 23, 10, tzinfo=UTC)


def queues(**queue: Any) -> dict[str, Any]:
    quotas = [{"flavor": name} for name in ("spot", "gpu")]
    return {
        "flavors": [
            {"name": name, "cluster": name, "nodes": nodes, "price_per_node_hour": price}
            for name, nodes, price in (("spot", 1, 1.0), ("gpu", 2, 3.0))
        ],
        "queues": [{"name": "vision", "quotas": quotas} | queue],
    }


def deploy(world: World, document: dict[str, Any]) -> None:
    text = yaml.safe_dump(document)
    (world.clients.settings.pipelines_folder / "queues.yml").write_text(text)


class Compute:
    """A fake of the SDK's `compute` operations, with quota and nodes."""

    def __init__(self) -> None:
        self.used = {"standardNCSv3Family": 0, "TotalLowPriorityCores": 0}
        self.limit = {"standardNCSv3Family": 24, "TotalLowPriorityCores": 24}
        self.nodes: list[str] = []
        self.asked: list[str] = []

    def list_usage(self) -> list[Any]:
        self.asked.append("usage")
        return [
            SimpleNamespace(
                name={"value": name}, type="usages", current_value=used, limit=self.limit[name]
            )
            for name, used in self.used.items()
        ]

    def list_sizes(self) -> list[Any]:
        return [SimpleNamespace(name="Standard_NC6s_v3", family="standardNCSv3Family", v_cp_us=6)]

    def list_nodes(self, _: str) -> list[Any]:
        self.asked.append("nodes")
        return [SimpleNamespace(node_state=state) for state in self.nodes]


class Background:
    """A background sender that sends nothing, so that messages stay in the outbox."""

    def submit(self, send: object) -> bool:
        return send is not None


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = make_world({"PIPELINES_FOLDER": str(tmp_path)})
    deploy(made, queues())
    workspace: Any = made.workspace
    workspace.compute = Compute()
    vars(made.clients).update(background=Background())
    return made


def ask(world: World, run: str, *options: ComputeOption, **more: Any) -> Admitted:
    request = RequestNodes(
        run=run, pipeline="digits", queue="vision", options=list(options or (GPU,)), **more
    )
    return request_nodes(world.clients, request)


def end(world: World, run: str, *, seconds: float | None = 1800, status: str = "Completed") -> None:
    """End the run's job after `seconds`; with None, the job never started."""
    world.workspace.jobs.store[(run,)] = a_job(run, status)
    ended = None if seconds is None else STARTED + timedelta(seconds=seconds)
    details = SimpleNamespace(
        start_time_utc=None if seconds is None else STARTED, end_time_utc=ended
    )
    operations = SimpleNamespace(get_run_details={run: details}.__getitem__)
    vars(world.workspace.jobs).update(_runs_operations=operations)


def keep_record(world: World, steps: tuple[RunStep, ...] = ()) -> None:
    """Write the record of run a."""
    status = RunStatus(
        id="a", pipeline="digits", attempt=1, dataset_version="v", state="running", since=STARTED
    )
    record = RunRecord(status=status, started_at=STARTED, steps=steps)
    world.records.blobs["runs/a/record.json"] = json.dumps(record.to_dict()).encode()


def document(world: World) -> Admission:
    return Admission.from_dict(json.loads(world.records.blobs[RECORD]))


def held_by(world: World) -> list[str]:
    return [each.run for each in document(world).admitted]


def alerts(world: World) -> list[str]:
    prefix = "outbox/ops-alerts/"
    return [name.removeprefix(prefix) for name in world.records.blobs if name.startswith(prefix)]


def woken(world: World) -> list[str]:
    """The runs that the messages on `job-events` wake."""
    blobs = world.records.blobs.items()
    sent = [json.loads(blob) for name, blob in blobs if name.startswith("outbox/job-events/")]
    return [parse_job_event(from_message(each["body"].encode())) for each in sent]


def test_a_run_is_admitted_and_asking_again_changes_nothing(world: World) -> None:
    first = ask(world, "a")
    before = dict(world.records.blobs)
    assert first.option == GPU
    assert ask(world, "a") == first
    assert world.records.blobs == before


def test_a_run_waits_until_another_gives_its_nodes_back(world: World) -> None:
    ask(world, "a")
    waits = ask(world, "b")
    assert waits.option is None
    assert waits.reason.endswith("gpu: 2 nodes, 0 of 2 are free")
    assert ask(world, "b").since == waits.since, "it keeps its place"
    end(world, "a")
    returned = return_nodes(world.clients, ReturnNodes(run="a"))
    assert returned.cost is not None
    assert returned.cost.node_seconds == 2 * 1800
    assert returned.cost.amount == pytest.approx(3.0)
    assert held_by(world) == ["b"], "it is decided at once, and the run is woken to find it"
    assert woken(world) == ["b"]
    assert ask(world, "b").option == GPU
    assert woken(world) == ["b"], "a run that asks needs no message"


def test_a_run_that_learns_of_room_for_others_wakes_them(world: World) -> None:
    deploy(world, queues(budget={"amount": 5, "days": 7}))
    ask(world, "a")
    deploy(world, queues(budget={"amount": 50, "days": 7}))
    ask(world, "b")
    assert (held_by(world), woken(world)) == (["a"], ["a"])


def test_returned_nodes_wake_a_run_whose_quota_was_short(world: World) -> None:
    compute: Any = world.workspace.compute
    ask(world, "a")
    compute.used["TotalLowPriorityCores"] = 24
    ask(world, "b", SPOT.model_copy(update={"nodes": 1}))
    end(world, "a")
    return_nodes(world.clients, ReturnNodes(run="a"))
    assert woken(world) == ["b"]


def test_nodes_are_not_given_back_while_the_job_may_run(world: World) -> None:
    ask(world, "a")
    end(world, "a", status="CancelRequested")
    assert not return_nodes(world.clients, ReturnNodes(run="a")).returned
    assert held_by(world) == ["a"]


@pytest.mark.parametrize("submitted", [True, False])
def test_a_job_that_never_ran_costs_nothing(world: World, *, submitted: bool) -> None:
    ask(world, "a")
    if submitted:
        end(world, "a", seconds=None, status="Canceled")
    returned = return_nodes(world.clients, ReturnNodes(run="a"))
    assert returned.cost is not None
    assert returned.cost.amount == 0
    assert document(world).admitted == ()
    assert document(world).lengths == ()


def test_a_crash_after_the_settlement_finds_the_cost_in_the_record(world: World) -> None:
    keep_record(world)
    deploy(world, queues(budget={"amount": 100, "days": 7}))
    ask(world, "a")
    end(world, "a")
    first = return_nodes(world.clients, ReturnNodes(run="a"))
    assert return_nodes(world.clients, ReturnNodes(run="a")) == first
    (spending,) = document(world).spending
    assert spending.settled == pytest.approx(3.0), "once"


def test_a_run_that_is_to_be_cancelled_is_not_admitted(world: World) -> None:
    cancel = CancelRequest(by="ada", reason="no")
    world.records.blobs["runs/a/cancel"] = json.dumps(cancel.to_dict()).encode()
    assert ask(world, "a").cancel == cancel
    assert RECORD not in world.records.blobs


def test_an_option_without_quota_is_skipped(world: World) -> None:
    compute: Any = world.workspace.compute
    deploy(world, queues() | {"flavors": [{**each, "nodes": 2} for each in queues()["flavors"]]})
    compute.used["TotalLowPriorityCores"] = 18
    assert ask(world, "a", SPOT, GPU).option == GPU
    waits = ask(world, "b", SPOT)
    assert "18 of 24 vCPUs of the quota TotalLowPriorityCores are in use, 2 new nodes need 12" in (
        waits.reason
    )
    compute.used["TotalLowPriorityCores"] = 12
    assert ask(world, "b", SPOT).option == SPOT


def test_idle_nodes_of_the_cluster_are_there_already(world: World) -> None:
    compute: Any = world.workspace.compute
    compute.used["standardNCSv3Family"] = 24
    compute.nodes = ["idle", "running", "idle"]
    assert ask(world, "a").option == GPU
    assert compute.asked == ["usage", "nodes"]


def test_a_request_reads_the_quota_once_and_no_nodes_if_there_is_room_for_all(world: World) -> None:
    compute: Any = world.workspace.compute
    for run in ("a", "b"):
        ask(world, run, GPU, SPOT)
    assert compute.asked == ["usage", "usage"]


def test_a_quota_that_is_too_small_for_every_option_is_an_error(world: World) -> None:
    compute: Any = world.workspace.compute
    compute.limit |= {"standardNCSv3Family": 6}
    with pytest.raises(QuotaExceeded, match=r"gpu \(2 x Standard_NC6s_v3\): 0 of 6 vCPUs"):
        ask(world, "a")
    one = GPU.model_copy(update={"nodes": 1})
    assert ask(world, "a", GPU, one).option == one


def test_a_refused_option_is_given_up_and_the_next_one_taken(world: World) -> None:
    one = SPOT.model_copy(update={"nodes": 1})
    assert ask(world, "a", one, GPU).option == one
    refusal = Refusal(cluster="spot", nodes=1, message="no such nodes")
    assert ask(world, "a", one, GPU, refusals=(refusal,)).option == GPU
    assert [(each.run, each.flavor) for each in document(world).admitted] == [("a", "gpu")]
    with pytest.raises(QuotaExceeded, match="no such nodes"):
        ask(world, "b", one, refusals=(refusal,))


def test_fewer_nodes_of_the_cluster_that_refused_more_are_another_option(world: World) -> None:
    one = GPU.model_copy(update={"nodes": 1})
    assert ask(world, "a", GPU, one).option == GPU
    refusal = Refusal(cluster="gpu", nodes=2, message="no such nodes")
    for _ in range(2):  # the second request changes nothing
        assert ask(world, "a", GPU, one, refusals=(refusal,)).option == one
        assert [(each.run, each.nodes) for each in document(world).admitted] == [("a", 1)]


def test_an_option_whose_nodes_were_taken_away_too_often_is_skipped(world: World) -> None:
    given = queues()
    given["flavors"][0]["evictions_allowed"] = 1
    deploy(world, given)
    one = SPOT.model_copy(update={"nodes": 1})
    states: tuple[RunState, ...] = ("queued", "running", "queued", "running", "queued", "running")
    since = datetime.now(UTC) - timedelta(hours=1)
    steps = tuple(RunStep(state=state, began_at=since) for state in states)
    keep_record(world, steps)
    assert ask(world, "a", one, GPU).option == one
    end(world, "a")
    for _ in range(2):  # the second call, as after a crash, counts no eviction twice
        return_nodes(world.clients, ReturnNodes(run="a"))
    assert [each.flavor for each in document(world).evictions] == ["spot", "spot"]
    assert ask(world, "b", one, GPU).option == GPU
    waits = ask(world, "c", one, GPU)
    assert "spot: 1 node, which were taken away 2 times within 24 h, and 1 are allowed" in (
        waits.reason
    )
    assert ask(world, "d", one).option == one, "it has no other"
    tomorrow = accounts.carry_forward(document(world), since + timedelta(hours=24))
    assert tomorrow.evictions == ()


def test_a_queue_that_left_the_file_is_an_error_that_says_what_to_do(world: World) -> None:
    (world.clients.settings.pipelines_folder / "queues.yml").unlink()
    with pytest.raises(InvalidQueues, match=r"queue vision is not in queues\.yml any more"):
        ask(world, "a")
    assert return_nodes(world.clients, ReturnNodes(run="a")).returned
    assert known_runs(world.clients, now=STARTED) == {}


def test_operators_are_alerted_to_a_long_wait_once(world: World) -> None:
    deploy(world, queues() | {"alert_after_seconds": 0.000_001})
    ask(world, "a")
    for _ in range(3):
        ask(world, "b")
    assert alerts(world) == ["waiting-for-nodes%3Ab.json"]
    for name in set(world.records.blobs) - {RECORD}:
        del world.records.blobs[name]
    ask(world, "b")
    assert alerts(world) == []


def test_operators_are_alerted_to_a_budget_once_a_period(world: World) -> None:
    deploy(world, queues(budget={"amount": 5, "days": 7}))
    reason = ask(world, "a").reason
    assert "6.00 USD, more than the whole budget of 5.00 USD: raise the budget of queue" in reason
    ask(world, "a")
    ask(world, "b")
    (alert,) = alerts(world)
    assert alert.startswith("budget-exhausted%3Avision%3A")
    message = json.loads(world.records.blobs[f"outbox/ops-alerts/{alert}"])
    assert json.loads(message["body"])["data"]["reason"] == reason


def test_reconciliation_gives_back_what_a_dead_run_held(world: World) -> None:
    for run in ("dead", "waits", "gone"):
        ask(world, run)
    hub: Any = TaskHub()
    hub.add("dead", "retraining", "Terminated")
    hub.add("waits", "retraining", custom_status=None)
    end(world, "dead", status="Canceled")
    runs = known_runs(world.clients, now=datetime.now(UTC))
    assert runs.keys() == {"dead", "waits", "gone"}
    for run, holds in runs.items():
        done = asyncio.run(reconcile_nodes(world.clients, hub, run, is_admitted=holds))
        assert done == (run != "waits")
    assert held_by(world) == ["waits"]
    assert document(world).waiting == ()


def test_a_run_that_is_about_to_be_started_again_keeps_its_place(world: World) -> None:
    for run in ("a-v-1", "b-v-1"):
        ask(world, run)
    places = document(world).waiting
    hub: Any = TaskHub()
    status = run_status("b-v-1", "waiting_for_nodes", STARTED)
    hub.add("b-v-1", "retraining", "Completed", custom_status=status.to_dict())
    for run, holds in known_runs(world.clients, now=datetime.now(UTC)).items():
        if run == "b-v-1":
            assert not asyncio.run(reconcile_nodes(world.clients, hub, run, is_admitted=holds))
    assert document(world).waiting == places


def test_the_run_that_supersedes_a_waiting_one_takes_its_place(world: World) -> None:
    for run in ("holds", "old", "other", "new"):
        ask(world, run)
    since = {each.run: each.since for each in document(world).waiting}
    return_nodes(world.clients, ReturnNodes(run="old", heir="new"))
    assert {each.run: each.since for each in document(world).waiting} == {
        "other": since["other"],
        "new": since["old"],
    }
    return_nodes(world.clients, ReturnNodes(run="other", heir="unknown"))
    assert [each.run for each in document(world).waiting] == ["new"]


def test_reconciliation_wakes_a_run_that_does_not_know_that_it_was_admitted(world: World) -> None:
    ask(world, "a-v-1")
    hub: Any = TaskHub()
    status = run_status("a-v-1", "waiting_for_nodes", STARTED)
    hub.add("a-v-1", "retraining", custom_status=status.to_dict())
    assert known_runs(world.clients, now=datetime.now(UTC)) == {"a-v-1": True}
    assert not asyncio.run(reconcile_nodes(world.clients, hub, "a-v-1", is_admitted=True))
    assert hub.raised == [("a-v-1", "wake_up")]


def test_a_change_of_usage_alone_is_not_written(world: World) -> None:
    ask(world, "a")
    before = world.records.blobs[RECORD]
    found = load_queues(world.clients.settings.pipelines_folder)
    assert found is not None
    change_admission(
        world.clients, found, lambda given: given, now=datetime.now(UTC) + timedelta(days=1)
    )
    assert world.records.blobs[RECORD] == before
