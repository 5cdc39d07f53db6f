"""GET /api/queues: the runs that hold nodes or wait for them, the reasons, budgets and costs."""

from __future__ import annotations

from datetime import date, datetime

from handlers.operate.api.requests import Document
from handlers.platform.clients import Clients
from handlers.training.admission import find_admission
from orchestrations.configuration.queues import Queue, Queues
from orchestrations.contracts.capacity import Admission
from orchestrations.names import run_of_job
from orchestrations.training import accounts
from orchestrations.training.admission import Division, divide
from orchestrations.training.room import Room


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


def list_queues(clients: Clients, *, now: datetime) -> QueueList:
    """List the queues: which runs hold or wait for nodes, and why; budgets.

    The list is empty without a `queues.yml`.
    """
    document = find_admission(clients, now=now)
    if document is None:
        return QueueList(currency=None, prices_as_of=None, flavors=[], queues=[], costs=[])
    # This division is not written: runs are admitted when they request nodes.
    return describe_queues(document.queues, divide(document, now))


def read_costs(clients: Clients, now: datetime) -> tuple[str | None, list[CostState]]:
    """The currency and the costs; (None, []) without a `queues.yml`."""
    document = find_admission(clients, now=now)
    if document is None:
        return None, []
    return document.queues.currency, describe_costs(document, now)


def describe_queues(queues: Queues, division: Division) -> QueueList:
    """The answer for a division of the nodes. Pure."""
    room = Room(division.document)
    return QueueList(
        currency=queues.currency,
        prices_as_of=queues.prices_as_of,
        flavors=[
            FlavorState(
                name=flavor.name,
                cluster=flavor.cluster,
                nodes=flavor.nodes,
                nodes_free=max(0, room.free(flavor.name)),
                price_per_node_hour=flavor.price_per_node_hour,
                evictions=accounts.evictions_of(division.document, flavor.name),
                evictions_allowed=flavor.evictions_allowed,
            )
            for flavor in queues.flavors
        ],
        queues=[_describe(queue, room, division) for queue in queues.queues],
        costs=describe_costs(division.document, division.document.at),
    )


def describe_costs(document: Admission, now: datetime) -> list[CostState]:
    """Costs of this month and the previous one, newest first. Pure."""
    return [
        CostState(
            month=each.month,
            queue=each.queue,
            pipeline=each.pipeline,
            runs=each.runs,
            node_hours=round(each.node_seconds / 3600, 2),
            amount=round(each.amount, 2),
        )
        for month in accounts.months(now)
        for each in sorted(document.costs, key=lambda it: (it.queue, it.pipeline))
        if each.month == month
    ]


def _describe(queue: Queue, room: Room, division: Division) -> QueueState:
    document = division.document
    usage = {(each.queue, each.flavor): each.node_seconds for each in document.usage}
    return QueueState(
        name=queue.name,
        weight=queue.weight,
        quotas=[
            QueueQuota(
                flavor=quota.flavor,
                nominal_quota=quota.nominal_quota,
                limit=room.queues.limit(queue.name, quota.flavor),
                nodes_held=room.held[queue.name, quota.flavor],
                # Usage decays all the time; rounding keeps the ETag stable between changes.
                borrowed_node_hours=round(usage.get((queue.name, quota.flavor), 0.0) / 3600, 2),
            )
            for quota in queue.quotas
        ],
        budget=_describe_budget(queue, room),
        holding=[
            RunHoldingNodes.model_validate(run.model_copy(update={"run": run_of_job(run.run)}))
            for run in document.admitted
            if run.queue == queue.name
        ],
        waiting=[
            RunWaitingForNodes(
                run=run_of_job(run.run),
                pipeline=run.pipeline,
                since=run.since,
                sentence=division.reasons[run.run],
            )
            for run in sorted(document.waiting, key=lambda each: (each.since, each.run))
            if run.queue == queue.name
        ],
    )


def _describe_budget(queue: Queue, room: Room) -> BudgetState | None:
    spending = accounts.spending_of(room.document, queue.name)
    if queue.budget is None or spending is None:
        return None
    begins_at, ends_at = accounts.period_of(queue.budget, room.document.at)
    return BudgetState(
        amount=queue.budget.amount,
        spent=round(spending.settled, 2),
        reserved=round(room.reserved[queue.name], 2),
        period_begins_at=begins_at,
        period_ends_at=ends_at,
    )
