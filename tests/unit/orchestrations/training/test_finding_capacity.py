from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from handlers.training.retries import start_attempt
from orchestrations.contracts.base import Contract
from orchestrations.contracts.capacity import Admitted, NodesReturned, RequestNodes
from orchestrations.contracts.runs import RunCost, RunStatus
from orchestrations.contracts.training import JobState, RunInput
from orchestrations.errors import QuotaExceeded
from orchestrations.platform.waiting import FIRST_NODES_DELAY, LAST_DELAY, NODES_GENERATION
from orchestrations.training.retraining import retraining
from tests.unit.orchestrations.driver import START, Driver, answered_by, finish
from tests.unit.orchestrations.examples import PIPELINE, run_request, with_rules
from tests.unit.orchestrations.training.simulated_workspace import FAILING, QUICK, Cluster, recorded

IN_A_QUEUE = PIPELINE.model_copy(update={"queue": "vision"})
RUN = "digits-0123456789abcdef-1"
COST = RunCost(
    queue="vision",
    flavor="gpu",
    nodes=1,
    node_seconds=30,
    price_per_node_hour=12,
    amount=0.1,
    currency="USD",
)


@dataclass
class ClusterWithQueue(Cluster):
    """A workspace with a queue for nodes, which are free from `free_after` seconds on."""

    free_after: float = 0
    quota_short: str | None = None
    """The cluster that Azure ML refuses for its quota."""
    asked: list[float] = field(default_factory=list[float])

    def answer(self, name: str, request: Any) -> Contract:
        match name:
            case "ensure_capacity" if request.options[0].cluster == self.quota_short:
                raise QuotaExceeded("the quota is 0")
            case "request_nodes":
                return self._admit(request)
            case "return_nodes":
                return NodesReturned(returned=True, cost=COST)
            case _:
                return super().answer(name, request)

    def _admit(self, request: RequestNodes) -> Admitted:
        self.asked.append(self.seconds)
        if self.cancel is not None:
            return Admitted(since=START, cancel=self.cancel)
        if self.seconds < self.free_after:
            return Admitted(reason="0 of 4 are free", since=START)
        refused = {refusal.cluster for refusal in request.refusals}
        option = next(each for each in request.options if each.cluster not in refused)
        return Admitted(option=option, since=self.driver.now)


def busy_for(seconds: float, **more: Any) -> ClusterWithQueue:
    """A cluster without free nodes for some seconds; then the job runs and completes."""
    states: list[tuple[float, JobState]] = [
        (0, "queued"),
        (seconds + 200, "running"),
        (seconds + 300, "completed"),
    ]
    return ClusterWithQueue(states, free_after=seconds, **more)


def states(instance: Any) -> list[str]:
    return [state for state, _ in itertools.groupby(each["state"] for each in instance.statuses)]


def test_a_run_waits_and_asks_again_by_itself() -> None:
    cluster = busy_for(500)
    instance = cluster.start(pipeline=IN_A_QUEUE)
    assert RunStatus.from_dict(instance.output).state == "succeeded"
    assert states(instance)[:4] == [
        "registering",
        "provisioning",
        "waiting_for_nodes",
        "provisioning",
    ]
    waits = [each for each in instance.statuses if each["state"] == "waiting_for_nodes"]
    assert {each["reason"] for each in waits} == {"0 of 4 are free"}
    assert RunStatus.from_dict(instance.output).reason is None
    minutes = [round(each / 60) for each in cluster.asked]
    assert minutes == [0, 1, 2, 4, 8, 16], "its delays grow, since a wake-up is to be expected"


def test_a_wake_up_cuts_the_wait_short_and_the_delays_grow_from_a_minute_again() -> None:
    cluster = busy_for(2_150)
    cluster.wake_at(2_000)
    cluster.start(pipeline=IN_A_QUEUE)
    assert [int(each) for each in cluster.asked[-4:]] == [2_000, 2_060, 2_120, 2_240]


def test_a_wait_of_a_day_is_cheap_and_finds_a_raised_budget_within_the_longest_delay() -> None:
    cluster = busy_for(86_400)
    cluster.start(pipeline=IN_A_QUEUE)
    assert len(cluster.asked) <= 105
    assert cluster.asked[-1] <= 86_400 + LAST_DELAY.total_seconds()


def test_a_long_wait_goes_on_in_new_generations_and_keeps_its_place() -> None:
    seconds = 3 * NODES_GENERATION.total_seconds()
    cluster = busy_for(seconds)
    instance = cluster.start(pipeline=IN_A_QUEUE)
    assert RunStatus.from_dict(instance.output).state == "succeeded"
    assert instance.generations >= 3
    assert len(cluster.requests("register_dataset")) == 1
    waits = [each for each in instance.statuses if each["state"] == "waiting_for_nodes"]
    assert {each["reason"] for each in waits} == {"0 of 4 are free"}, "each generation says why"
    since = {RunStatus.from_dict(each).since for each in waits}
    assert max(since) - min(since) < timedelta(seconds=1), "the state began once"


def landed(cluster: ClusterWithQueue) -> Any:
    """Run the first attempt as a sub-orchestration; the instance of its parent."""

    def landing(context: Any) -> Any:
        given = RunInput(request=run_request().model_copy(update={"pipeline": IN_A_QUEUE}))
        return (yield context.call_sub_orchestrator("retraining", given.to_dict(), RUN))

    driver = Driver(
        activities=answered_by(cluster._answer),  # pyright: ignore[reportPrivateUsage]
        orchestrators={"landing": landing, "retraining": retraining},
    )
    cluster.driver = driver
    parent = driver.start("landing", "landing-digits", None)
    driver.run()
    return parent


def test_a_landing_does_not_wait_for_a_run_that_waits_for_nodes() -> None:
    cluster = busy_for(86_400)
    parent = landed(cluster)
    assert (parent.is_live, parent.output) == (False, None)
    first = cluster.driver.instances[RUN]
    assert cluster.seconds < NODES_GENERATION.total_seconds() + 60
    (again,) = cluster.requests("schedule_retry")
    assert (again.request.run, again.delay_seconds) == (RUN, FIRST_NODES_DELAY.total_seconds())
    assert states(first)[-1] == "waiting_for_nodes"
    assert cluster.told == [], "nothing has happened to the run"
    for _ in range(2):  # the message is delivered twice
        finish(start_attempt(cluster.driver.client, again.request))
    cluster.driver.run()
    run = cluster.driver.instances[RUN]
    assert RunStatus.from_dict(run.output).state == "succeeded"
    assert not finish(start_attempt(cluster.driver.client, again.request)), "it has ended"
    assert len(cluster.requests("schedule_retry")) == 1, "now nothing waits for it"
    assert cluster.told == ["started", "succeeded"]
    assert recorded(cluster).status.state == "succeeded"


def test_a_run_stays_with_its_landing_while_it_cannot_be_handed_over() -> None:
    cluster = busy_for(2 * NODES_GENERATION.total_seconds())
    cluster.broken.add("schedule_retry")
    parent = landed(cluster)
    assert RunStatus.from_dict(parent.output).state == "succeeded"
    assert len(cluster.requests("register_dataset")) == 1


def test_a_waiting_run_is_superseded_by_a_newer_dataset_which_takes_its_place() -> None:
    cluster = busy_for(86_400, superseded_by="digits-ffffffffffffffff-1")
    instance = cluster.start(pipeline=IN_A_QUEUE)
    status = RunStatus.from_dict(instance.output)
    assert status.state == "superseded"
    assert "digits-ffffffffffffffff-1" in (status.reason or "")
    (given,) = cluster.requests("return_nodes")
    assert (given.run, given.heir) == (RUN, "digits-ffffffffffffffff-1")
    assert cluster.told == ["superseded"]
    assert not cluster.requests("submit_job")


def test_a_wait_past_its_limit_is_a_failed_attempt() -> None:
    cluster = ClusterWithQueue(QUICK, free_after=10**6)
    status = cluster.run(pipeline=with_rules(IN_A_QUEUE, limits={"waiting_seconds": 3500.0}))
    assert status.state == "retrying"
    assert 3500 <= cluster.asked[-1] < 3510, "the last delay ends with the limit"
    assert status.error is not None
    assert status.error.type == "DeadlineExceeded"
    assert (
        "queue vision for more than limits.waiting_seconds (3500 s): 0 of" in status.error.message
    )
    assert len(cluster.requests("return_nodes")) == 1
    assert not cluster.requests("cancel_job"), "there is no job yet"


def test_an_option_that_azure_ml_refuses_is_skipped() -> None:
    cluster = ClusterWithQueue(QUICK, quota_short="spot")
    assert cluster.run(pipeline=IN_A_QUEUE).state == "succeeded"
    first, second = cluster.requests("request_nodes")
    assert first.refusals == ()
    assert [(each.cluster, each.message) for each in second.refusals] == [
        ("spot", "the quota is 0")
    ]
    (job,) = cluster.requests("submit_job")
    assert job.capacity.cluster == "dedicated"


def test_an_outage_of_the_records_does_not_end_the_wait() -> None:
    cluster = busy_for(700, outages={"request_nodes": range(100, 400)})
    assert cluster.run(pipeline=IN_A_QUEUE).state == "succeeded"


def test_a_failed_job_gives_its_nodes_back_once_and_has_its_cost() -> None:
    cluster = ClusterWithQueue(FAILING)
    status = cluster.run(pipeline=IN_A_QUEUE)
    assert status.state == "retrying"
    assert status.cost == COST
    assert len(cluster.requests("return_nodes")) == 1


def test_nodes_that_cannot_be_given_back_end_no_run() -> None:
    cluster = ClusterWithQueue(QUICK, broken={"return_nodes"})
    assert cluster.run(pipeline=IN_A_QUEUE).state == "succeeded"


def test_a_later_attempt_takes_a_later_option() -> None:
    cluster = ClusterWithQueue(QUICK)
    cluster.start(2)
    (capacity,) = cluster.requests("ensure_capacity")
    assert [each.cluster for each in capacity.options] == ["dedicated"]
