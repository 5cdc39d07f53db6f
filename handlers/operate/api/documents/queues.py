"""Answers of the HTTP API: queues, their quota and budgets."""

from __future__ import annotations

from datetime import date, datetime

from handlers.operate.api.documents.base import Document


class FlavorState(Document):
    """A kind of nodes, with its price and the number of free nodes."""

    name: str
    cluster: str
    nodes: int
    nodes_free: int
    price_per_node_hour: float
    evictions: int
    """Evictions in the last 24 hours, counted over the jobs that have ended."""
    evictions_allowed: int | None
    """With more evictions than this, runs use another of their compute options."""


class QueueQuota(Document):
    """A queue's quota of a flavor, and the nodes that it holds."""

    flavor: str
    nominal_quota: int
    limit: int
    nodes_held: int
    borrowed_node_hours: float
    """Recent usage above the nominal quota, with exponential decay: half after one half-life."""


class BudgetState(Document):
    """A queue's budget and spending in the current period."""

    amount: float
    spent: float
    """Cost of runs whose jobs have ended."""
    reserved: float
    """Expected cost of runs that hold nodes."""
    period_begins_at: datetime
    period_ends_at: datetime


class RunHoldingNodes(Document):
    """A run that was admitted."""

    run: str
    pipeline: str
    flavor: str
    nodes: int
    since: datetime


class RunWaitingForNodes(Document):
    """A run that waits for nodes."""

    run: str
    pipeline: str
    since: datetime
    sentence: str
    """A sentence with numbers: the resource that it waits for, and the reason."""


class QueueState(Document):
    """A queue of runs."""

    name: str
    weight: float
    quotas: list[QueueQuota]
    budget: BudgetState | None
    holding: list[RunHoldingNodes]
    waiting: list[RunWaitingForNodes]
    """Oldest first."""


class CostState(Document):
    """Cost of a pipeline's runs in a queue whose jobs ended in one month."""

    month: str
    """The month in UTC, such as `2026-11`."""
    queue: str
    pipeline: str
    runs: int
    node_hours: float
    amount: float


class QueueList(Document):
    """Answer of `GET /api/queues`; empty without a `queues.yml`."""

    currency: str | None
    prices_as_of: date | None
    """The date of the flavors' prices, from `queues.yml`."""
    flavors: list[FlavorState]
    queues: list[QueueState]
    costs: list[CostState]
    """Costs of this month and the previous one, newest first."""
