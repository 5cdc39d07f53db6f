from __future__ import annotations

from datetime import UTC, datetime

from orchestrations.contracts.runs import MonthlyCost, RunCost
from orchestrations.training.capacity import accounts
from tests.unit.orchestrations.training.capacity.examples import (
    Cluster,
    an_admission,
    queues,
    waiting,
)

QUEUES = queues({"name": "vision", "nominal_quota": 4}, {"name": "speech", "nominal_quota": 0})


def spent(document: Cluster) -> list[tuple[str, str, str, int, float]]:
    return [
        (each.month, each.queue, each.pipeline, each.runs, each.node_seconds)
        for each in document.document.costs
    ]


def run(cluster: Cluster, name: str, queue: str, seconds: float, pipeline: str = "digits") -> None:
    cluster.ask(waiting(name, queue, 2, since=cluster.now, pipeline=pipeline), seconds)
    cluster.decide()
    assert cluster.step() is not None


def test_costs_are_kept_by_month_queue_and_pipeline() -> None:
    cluster = Cluster(an_admission(QUEUES))
    run(cluster, "a", "vision", 1800)
    run(cluster, "b", "vision", 3600)
    run(cluster, "c", "vision", 60, pipeline="signs")
    assert spent(cluster) == [
        ("2026-11", "vision", "digits", 2, 10_800),
        ("2026-11", "vision", "signs", 1, 120),
    ]
    (digits, _) = cluster.document.costs
    price = QUEUES.flavors[0].price_per_node_hour
    assert digits.amount == accounts.price_of(10_800, price)


def test_the_month_is_that_in_which_the_job_ends_and_two_are_kept() -> None:
    cluster = Cluster(an_admission(QUEUES))
    run(cluster, "a", "vision", 60)
    cluster.pass_time(datetime(2026, 11, 30, 23, 59, tzinfo=UTC))
    run(cluster, "b", "vision", 120)
    assert [each[0] for each in spent(cluster)] == ["2026-11", "2026-12"]
    cluster.pass_time(datetime(2027, 1, 31, tzinfo=UTC))
    run(cluster, "c", "vision", 60)
    assert [each[0] for each in spent(cluster)] == ["2026-12", "2027-01"]


def test_a_job_that_never_ran_is_no_run_that_cost() -> None:
    cluster = Cluster(an_admission(QUEUES))
    run(cluster, "a", "vision", 0)
    assert spent(cluster) == []


def test_the_same_run_again_costs_nothing_more() -> None:
    known = MonthlyCost(
        month="2026-11", queue="vision", pipeline="digits", runs=1, node_seconds=60, amount=1
    )
    cluster = Cluster(an_admission(QUEUES, costs=(known,)))
    run(cluster, "a", "vision", 60)
    once = cluster.document
    cost = RunCost(
        queue="vision",
        flavor="gpu",
        nodes=2,
        node_seconds=120,
        price_per_node_hour=1,
        amount=1,
        currency="USD",
    )
    assert accounts.settle(once, "a", cost) == once
    assert spent(cluster) == [("2026-11", "vision", "digits", 2, 180)]
