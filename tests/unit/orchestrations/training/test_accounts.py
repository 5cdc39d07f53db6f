from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from handlers.platform.settings import APP_FOLDER
from orchestrations.configuration.queues import Flavor, Price, Queue, Queues
from orchestrations.configuration.section import Section
from orchestrations.contracts.capacity import NodesWanted
from orchestrations.contracts.runs import MonthlyCost, RunCost, price_of
from orchestrations.training import accounts
from tests.unit.orchestrations.training.admission_examples import (
    START,
    Cluster,
    an_admission,
    queues,
    waiting,
)

QUEUES = queues({"name": "vision", "nominal_quota": 4}, {"name": "speech", "nominal_quota": 0})
PAGE = (APP_FOLDER / "docs" / "capacity.md").read_text("utf-8")


PARTS = {"flavors": Flavor, "queues": Queue, "prices": Price}


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
    assert digits.amount == price_of(10_800, price)


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


def documented_queues() -> Queues:
    texts = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    queues, prices = (Queues.model_validate(yaml.safe_load(each)) for each in texts)
    assert prices.price("standard_nc24ads_a100_v4", "low_priority")
    return queues


def test_the_example_happens_as_the_page_says() -> None:
    cluster = Cluster(an_admission(documented_queues()))
    options = (NodesWanted(flavor="spot", nodes=2),)
    for number, queue in enumerate(("vision", "speech")):
        for run in range(1, 5):
            since = START + timedelta(seconds=number * 10 + run)
            asked = waiting(f"{queue}-{run}", queue, since=since, pipeline=queue)
            seconds = 1800 if (queue, run) == ("vision", 1) else 3600
            cluster.ask(asked.model_copy(update={"options": options}), seconds)
    cluster.decide()
    order = re.findall(r"^\| `(\w+-\d)`, on 2 nodes", PAGE, re.MULTILINE)
    assert [run.run for run in cluster.document.admitted] == order

    ended = cluster.step()
    assert ended is not None
    assert ended.run == "vision-1"
    cost = price_of(2 * 1800, ended.price_per_node_hour)
    assert f"2 nodes x 0.5 h x {ended.price_per_node_hour:.2f} = {cost:.2f} USD" in PAGE
    cluster.decide()
    assert cluster.document.admitted[-1].run == "speech-2"


def test_every_key_is_on_the_page_with_its_default() -> None:
    for name, field in Queues.model_fields.items():
        if name in PARTS:
            assert f"`{name}[]." in PAGE
            continue
        (shown,) = re.findall(rf"^\| `{name}` \| `?([^`|]+?)`? \|", PAGE, re.MULTILINE)
        default: Any = field.default
        text = default if isinstance(default, str | None) else f"{default:g}"
        assert shown == (text or "none")


@pytest.mark.parametrize(("name", "part"), PARTS.items())
def test_every_key_of_a_part_is_on_the_page(name: str, part: type[Section]) -> None:
    for key in part.model_fields:
        assert re.search(rf"`{name}\[\]\.{key}", PAGE), key
