"""The cost of a run that is in no queue."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from handlers.platform.run_records import add_cost
from orchestrations.contracts.run_states import RunState
from orchestrations.contracts.training import RunRecord, RunStep, UsedCompute
from tests.unit.orchestrations.examples import FROZEN_AT, run_status

PRICES = """
currency: EUR
prices:
  - {size: Standard_NC6s_v3, price_per_node_hour: 3}
  - {size: Standard_NC6s_v3, priority: low_priority, price_per_node_hour: 1}
"""


def record(
    state: RunState, size: str = "STANDARD_NC6S_V3", priority: str = "dedicated"
) -> RunRecord:
    """Two nodes, whose job was running for half an hour."""
    began_at = FROZEN_AT + timedelta(minutes=10)
    ended_at = began_at + timedelta(minutes=30)
    return RunRecord(
        status=run_status("digits-aa-1", state, ended_at),
        started_at=FROZEN_AT,
        steps=(
            RunStep(state="queued", began_at=FROZEN_AT),
            RunStep(state="running", began_at=began_at),
            RunStep(state=state, began_at=ended_at),
        ),
        compute=UsedCompute(cluster="gpu", size=size, priority=priority, nodes=2),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "queues.yml").write_text(PRICES, "utf-8")
    return tmp_path


@pytest.mark.parametrize("state", ["succeeded", "failed", "retrying", "cancelled"])
def test_a_run_that_has_ended_costs_its_node_hours(folder: Path, state: RunState) -> None:
    cost = add_cost(record(state), folder).cost
    assert cost is not None
    assert (cost.amount, cost.currency, cost.node_seconds) == (3.0, "EUR", 3600.0)
    assert (cost.queue, cost.flavor, cost.nodes) == (None, "Standard_NC6s_v3", 2)


def test_nodes_that_azure_may_take_have_a_price_of_their_own(folder: Path) -> None:
    cost = add_cost(record("succeeded", priority="low_priority"), folder).cost
    assert cost is not None
    assert cost.amount == 1.0


def test_without_a_price_or_before_the_end_there_is_no_cost(folder: Path, tmp_path: Path) -> None:
    assert add_cost(record("running"), folder).cost is None
    assert add_cost(record("succeeded", size="Standard_D2"), folder).cost is None
    assert add_cost(record("succeeded"), tmp_path / "elsewhere").cost is None
    (folder / "queues.yml").write_text("prices: dear", "utf-8")
    assert add_cost(record("succeeded"), folder).cost is None


def test_a_cost_that_is_known_stays(folder: Path) -> None:
    known = add_cost(record("succeeded"), folder)
    (folder / "queues.yml").write_text(PRICES.replace("3}", "9}"), "utf-8")
    assert add_cost(known, folder) == known
