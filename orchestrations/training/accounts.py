"""Usage and spending of queues, updated to a later time. Pure.

Usage decays exponentially, so that the result does not depend on how often it is updated.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from orchestrations.configuration.queues import Budget
from orchestrations.contracts.capacity import (
    Admission,
    AdmittedRun,
    BorrowedUsage,
    Eviction,
    JobLengths,
    Spending,
)
from orchestrations.contracts.runs import MonthlyCost, RunCost, price_of

FIRST_EXPECTATION_SECONDS = 3_600.0
"""The expected duration of a pipeline's first job."""
LENGTHS_KEPT = 9
EVICTIONS_COUNT_FOR = timedelta(hours=24)
FIRST_PERIOD_BEGINS_AT = datetime(1970, 1, 5, tzinfo=UTC)
"""A Monday, so that periods of seven days are weeks."""
# Smaller usage is dropped, so that the document keeps only queues that borrowed of late.
LEAST_NODE_SECONDS = 1.0


def carry_forward(document: Admission, now: datetime) -> Admission:
    """Update the document to a later time: usage grows and decays, budget periods begin.

    A time before the document's own changes nothing.
    """
    now = max(now, document.at)
    return document.model_copy(
        update={
            "at": now,
            "usage": _usage_at(document, now),
            "spending": tuple(
                _spending_at(document, queue.name, queue.budget, now)
                for queue in document.queues.queues
                if queue.budget is not None
            ),
            "evictions": tuple(
                each for each in document.evictions if now - each.at < EVICTIONS_COUNT_FOR
            ),
        }
    )


def held(document: Admission) -> Counter[tuple[str, str]]:
    """How many nodes each queue holds of each flavor."""
    nodes: Counter[tuple[str, str]] = Counter()
    for run in document.admitted:
        nodes[run.queue, run.flavor] += run.nodes
    return nodes


def borrowed(document: Admission, queue: str, flavor: str, nodes: int) -> int:
    """How many of the nodes that a queue holds are above its nominal quota."""
    quota = document.queues.quota(queue, flavor)
    return max(0, nodes - (0 if quota is None else quota.nominal_quota))


def expected_seconds(document: Admission, pipeline: str) -> float:
    """The expected duration of a pipeline's next job: the median of its last jobs."""
    known = next((each.seconds for each in document.lengths if each.pipeline == pipeline), ())
    return statistics.median(known) if known else FIRST_EXPECTATION_SECONDS


def spending_of(document: Admission, queue: str) -> Spending | None:
    """A queue's spending in the current period; None if it has no budget."""
    return next((each for each in document.spending if each.queue == queue), None)


def reserved(run: AdmittedRun, now: datetime) -> float:
    """The amount reserved for a run: its expected cost, or more if it takes longer."""
    seconds = max(run.expected_seconds, (now - run.since).total_seconds())
    return price_of(run.nodes * seconds, run.price_per_node_hour)


def settle(
    document: Admission, run: str, cost: RunCost, evicted_at: Sequence[datetime] = ()
) -> Admission:
    """Remove a run that has ended: its nodes are free, and its cost is settled. Idempotent.

    Args:
        document: after `carry_forward`.
        run: its id.
        cost: the cost of its job.
        evicted_at: the times at which Azure took nodes of its job away.
    """
    entry = next((each for each in document.admitted if each.run == run), None)
    if entry is None:
        return document
    spending = tuple(
        each.model_copy(update={"settled": each.settled + cost.amount})
        if each.queue == entry.queue
        else each
        for each in document.spending
    )
    lengths = document.lengths
    # A job that never ran is not a sample of the pipeline's durations.
    if cost.node_seconds:
        existing = next((each for each in lengths if each.pipeline == entry.pipeline), None)
        seconds = (*(existing.seconds if existing else ()), cost.node_seconds / cost.nodes)
        added = JobLengths(pipeline=entry.pipeline, seconds=seconds[-LENGTHS_KEPT:])
        lengths = (*(each for each in lengths if each is not existing), added)
    return document.model_copy(
        update={
            "admitted": tuple(each for each in document.admitted if each is not entry),
            "spending": spending,
            "lengths": lengths,
            "costs": _costs_with(document, entry, cost),
            "evictions": (
                *document.evictions,
                *(
                    Eviction(flavor=entry.flavor, at=at)
                    for at in evicted_at
                    if document.at - at < EVICTIONS_COUNT_FOR
                ),
            ),
        }
    )


def evictions_of(document: Admission, flavor: str) -> int:
    """How often nodes of a flavor were taken away from jobs within the last 24 hours."""
    return sum(1 for each in document.evictions if each.flavor == flavor)


def period_of(budget: Budget, now: datetime) -> tuple[datetime, datetime]:
    """When the budget's current period began, and when the next one begins."""
    length = timedelta(days=budget.days)
    begins_at = now - (now - FIRST_PERIOD_BEGINS_AT) % length
    return begins_at, begins_at + length


def months(now: datetime) -> tuple[str, str]:
    """This month and the one before, in UTC."""
    begins_at = now.astimezone(UTC).replace(day=1)
    return f"{begins_at:%Y-%m}", f"{begins_at - timedelta(days=1):%Y-%m}"


def _costs_with(document: Admission, entry: AdmittedRun, cost: RunCost) -> tuple[MonthlyCost, ...]:
    """Costs of each month, with a run that has ended now; older months are dropped."""
    kept = {
        (each.month, each.queue, each.pipeline): each
        for each in document.costs
        if each.month in months(document.at)
    }
    # A job that never ran has cost nothing.
    if cost.node_seconds:
        key = (months(document.at)[0], entry.queue, entry.pipeline)
        before = kept.get(key)
        kept[key] = MonthlyCost(
            month=key[0],
            queue=entry.queue,
            pipeline=entry.pipeline,
            runs=1 + (before.runs if before else 0),
            node_seconds=cost.node_seconds + (before.node_seconds if before else 0.0),
            amount=cost.amount + (before.amount if before else 0.0),
        )
    return tuple(kept[key] for key in sorted(kept))


def _usage_at(document: Admission, now: datetime) -> tuple[BorrowedUsage, ...]:
    half_life = timedelta(days=document.queues.usage_half_life_days).total_seconds()
    kept = 0.5 ** ((now - document.at).total_seconds() / half_life)
    # Node-seconds of one node held over the whole interval, each second decayed by its age.
    added_per_node = (1 - kept) * half_life / math.log(2)
    nodes, usage = held(document), {(each.queue, each.flavor): each for each in document.usage}
    usages: list[BorrowedUsage] = []
    for queue, flavor in sorted(nodes.keys() | usage.keys()):
        before = usage.get((queue, flavor))
        seconds = 0.0 if before is None else before.node_seconds * kept
        seconds += borrowed(document, queue, flavor, nodes[queue, flavor]) * added_per_node
        if seconds >= LEAST_NODE_SECONDS or (seconds and nodes[queue, flavor]):
            usages.append(BorrowedUsage(queue=queue, flavor=flavor, node_seconds=seconds))
    return tuple(usages)


def _spending_at(document: Admission, queue: str, budget: Budget, now: datetime) -> Spending:
    begins_at, _ = period_of(budget, now)
    known = spending_of(document, queue)
    if known is not None and known.period_begins_at == begins_at:
        return known
    return Spending(queue=queue, period_begins_at=begins_at, settled=0.0)
