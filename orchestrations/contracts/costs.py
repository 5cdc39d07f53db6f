"""Costs of runs."""

from __future__ import annotations

from orchestrations.contracts.base import Contract


class RunCost(Contract):
    """The cost of a run's job: nodes, node-seconds and price."""

    queue: str
    flavor: str
    nodes: int
    node_seconds: float
    """Nodes times the seconds from the job's start to its end, according to Azure ML."""
    price_per_node_hour: float
    amount: float
    """`node_seconds` / 3600 times `price_per_node_hour`."""
    currency: str


class MonthlyCost(Contract):
    """Cost of a pipeline's runs in a queue: those whose jobs ended in a month, in UTC."""

    month: str
    """For example `2026-11`."""
    queue: str
    pipeline: str
    runs: int
    node_seconds: float
    amount: float
