"""What a run has cost."""

from __future__ import annotations

from orchestrations.contracts.base import Contract


class RunCost(Contract):
    """The nodes of a run's job, for how long, and their price."""

    queue: str
    flavor: str
    nodes: int
    node_seconds: float
    """Nodes times the seconds from the job's start to its end, both by Azure ML."""
    price_per_node_hour: float
    amount: float
    """`node_seconds` / 3600 times `price_per_node_hour`."""
    currency: str
