"""Answers of the HTTP API: queues, their quota and budgets."""

from __future__ import annotations

from datetime import date, datetime

from handlers.api.documents.base import Document


class FlavorState(Document):
    """A kind of nodes, and how many of them no run of a queue holds."""

    name: str
    cluster: str
    nodes: int
    nodes_free: int
    price_per_node_hour: float
    evictions: int
    """How often its nodes were taken away from jobs that have ended, within the last 24 hours."""
    evictions_allowed: int | None
    """After more, runs take another option of theirs."""


class QueueQuota(Document):
    """Nodes of a flavor that a queue may hold, and those that it holds."""

    flavor: str
    nominal_quota: int
    limit: int
    nodes_held: int
    borrowed_node_hours: float
    """Above the nominal quota, of late: what was borrowed a half-life ago counts half."""


class BudgetState(Document):
    """A queue's money in the current period."""

    amount: float
    spent: float
    """By runs whose jobs have ended."""
    reserved: float
    """For runs that hold nodes: what is expected of them."""
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
    """The oldest first."""


class CostState(Document):
    """Cost of a pipeline's runs in a queue: those whose jobs ended in a month."""

    month: str
    """As in `2026-11`, in UTC."""
    queue: str
    pipeline: str
    runs: int
    node_hours: float
    amount: float


class QueueList(Document):
    """Answer of `GET /api/queues`; empty where there is no `queues.yml`."""

    currency: str | None
    prices_as_of: date | None
    """When the prices of the flavors were looked up, as `queues.yml` says."""
    flavors: list[FlavorState]
    queues: list[QueueState]
    costs: list[CostState]
    """Of this month and the one before, the newest first."""
