from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from handlers.operate.api.queues import describe_queues
from landfall_cli.output import Output
from landfall_cli.queue import print_queues
from orchestrations.contracts.runs import MonthlyCost
from orchestrations.training.admission import divide
from tests.unit.orchestrations.training.admission_examples import (
    START,
    an_admission,
    queues,
    waiting,
)

QUEUES = queues(
    {"name": "vision", "nominal_quota": 2, "budget": {"amount": 10, "days": 7}},
    {"name": "speech", "borrowing_limit": 1},
)


def lines(document: Any) -> list[str]:
    """The lines that are printed, with one space between columns."""
    text = io.StringIO()
    now = datetime(2026, 11, 23, 0, 10, tzinfo=UTC)
    print_queues(document, Output(Console(file=text, width=200), as_json=False, now=lambda: now))
    return [" ".join(line.split()) for line in text.getvalue().splitlines()]


def test_people_see_nodes_budget_and_why_a_run_waits() -> None:
    runs = (waiting("a", "vision", 3), waiting("b", "speech", 2))
    document = describe_queues(QUEUES, divide(an_admission(QUEUES, *runs), START))
    vision, speech, run = lines(document.model_dump(mode="json"))[1:]
    assert vision == "vision gpu 3 of 4 2 0.00 spent, 6.00 reserved of 10.00 USD"
    assert speech == "speech gpu 0 of 1 0 -"
    assert run.startswith("b waits in queue speech since 2026-11-23 00:00:00 UTC (10 min ago)")


def test_people_see_what_each_pipeline_has_cost() -> None:
    spent = MonthlyCost(
        month="2026-11",
        queue="vision",
        pipeline="digits",
        runs=2,
        node_seconds=5400,
        amount=3.0,
    )
    document = describe_queues(QUEUES, divide(an_admission(QUEUES, costs=(spent,)), START))
    found = lines(document.model_dump(mode="json"))
    assert "MONTH QUEUE PIPELINE RUNS NODE-HOURS COST" in found
    assert "2026-11 vision digits 2 1.50 3.00 USD" in found


def test_without_queues_it_says_so() -> None:
    assert lines({"currency": None, "flavors": [], "queues": [], "costs": []}) == [
        "There is no queues.yml: no run waits for nodes in Landfall, and no node has a price."
    ]
