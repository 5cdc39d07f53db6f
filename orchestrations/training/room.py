"""The nodes that are left for a run, by one admission document, and why it waits. Pure.

Times are absolute, so that a sentence does not change while nothing happens.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from orchestrations.configuration.queues import Flavor
from orchestrations.contracts.capacity import Admission, NodesWanted, WaitingRun
from orchestrations.contracts.runs import price_of
from orchestrations.training import accounts


class Room:
    """Queries on an admission document, for the decisions."""

    def __init__(self, document: Admission) -> None:
        self.document = document
        self.queues = document.queues
        self.held = accounts.held(document)
        """(queue, flavor) → nodes."""
        self._in_use: Counter[str] = Counter()
        self._committed: defaultdict[tuple[str, str], float] = defaultdict(float)
        self.reserved: defaultdict[str, float] = defaultdict(float)
        """Queue → the amount that its budget reserves for admitted runs."""
        for run in document.admitted:
            self._in_use[run.flavor] += run.nodes
            self.reserved[run.queue] += accounts.reserved(run, document.at)
            elapsed = (document.at - run.since).total_seconds()
            remaining = max(0.0, run.expected_seconds - elapsed)
            self._committed[run.queue, run.flavor] += run.nodes * remaining
        self._usage = {(each.queue, each.flavor): each.node_seconds for each in document.usage}
        self._unassigned = {
            flavor.name: flavor.nodes - self.queues.nominal_quotas(flavor.name)
            for flavor in self.queues.flavors
        }

    def free(self, flavor: str) -> int:
        """Nodes of a flavor that no run holds; negative if the flavor's limit was lowered."""
        kind = self.queues.flavor(flavor)
        return 0 if kind is None else kind.nodes - self._in_use[flavor]

    def nominal(self, queue: str, flavor: str) -> int:
        """A queue's nominal quota."""
        quota = self.queues.quota(queue, flavor)
        return 0 if quota is None else quota.nominal_quota

    def share(self, queue: str, flavor: str) -> float:
        """A queue's borrowed usage, with the expected rest of its runs, divided by its weight."""
        declared, nodes = self.queues.queue(queue), self.held[queue, flavor]
        assert declared is not None, "only queues that are there are compared"
        borrowed = accounts.borrowed(self.document, queue, flavor, nodes)
        committed = self._committed[queue, flavor] * borrowed / nodes if nodes else 0.0
        return (self._usage.get((queue, flavor), 0.0) + committed) / declared.weight

    def usable(self, run: WaitingRun) -> list[NodesWanted]:
        """The options that only other runs can block, the best one first.

        Options with too many evictions are left out if there is another option.
        """
        found = [each for each in self._possible(run) if self.is_affordable(run, each)]
        return [each for each in found if not self.is_evicted(each.flavor)] or found

    def is_evicted(self, flavor: str) -> bool:
        """Whether a flavor had more evictions in the last 24 hours than it allows."""
        kind = self.queues.flavor(flavor)
        allowed = None if kind is None else kind.evictions_allowed
        return allowed is not None and accounts.evictions_of(self.document, flavor) > allowed

    def is_within_limit(self, run: WaitingRun, option: NodesWanted) -> bool:
        """Whether the run's queue may hold the option's nodes in addition to its current ones."""
        limit = self.queues.limit(run.queue, option.flavor)
        return self.held[run.queue, option.flavor] + option.nodes <= limit

    def is_guaranteed(self, run: WaitingRun, option: NodesWanted) -> bool:
        """Whether the option fits into the queue's nominal quota plus nodes in no queue's quota."""
        unassigned = self._unassigned.get(option.flavor, 0)
        return option.nodes <= self.nominal(run.queue, option.flavor) + unassigned

    def is_overdue(self, run: WaitingRun) -> bool:
        """Whether the run has waited so long that others may not overtake it."""
        waited = self.document.at - run.since
        return waited >= timedelta(seconds=self.queues.reserve_after_seconds)

    def expected_cost(self, run: WaitingRun, option: NodesWanted) -> float:
        """The amount of its queue's budget that the run would reserve."""
        flavor = self.queues.flavor(option.flavor)
        price = 0.0 if flavor is None else flavor.price_per_node_hour
        seconds = accounts.expected_seconds(self.document, run.pipeline)
        return price_of(option.nodes * seconds, price)

    def is_affordable(self, run: WaitingRun, option: NodesWanted) -> bool:
        """Whether the run's expected cost fits into its queue's budget."""
        queue = self.queues.queue(run.queue)
        spending = accounts.spending_of(self.document, run.queue)
        if queue is None or queue.budget is None or spending is None:
            return True
        committed = spending.settled + self.reserved[run.queue]
        return committed + self.expected_cost(run, option) <= queue.budget.amount

    def exceeds_budget(self, run: WaitingRun) -> bool:
        """Whether each option costs more than the queue's whole budget: no period admits it."""
        queue = self.queues.queue(run.queue)
        return queue is not None and all(
            queue.budget is not None and self.expected_cost(run, each) > queue.budget.amount
            for each in self._possible(run)
        )

    def lacks_only_money(self, run: WaitingRun) -> bool:
        """Whether only the rest of the budget keeps the run from being admitted."""
        return bool(self._possible(run)) and not self.usable(run)

    def _possible(self, run: WaitingRun) -> list[NodesWanted]:
        return [
            option
            for option in run.options
            if option.shortage is None
            and self.queues.limit(run.queue, option.flavor) >= option.nodes
        ]


@dataclass(frozen=True, kw_only=True)
class Reasons:
    """The reasons after one round of admission."""

    room: Room
    """The nodes after the round's admissions."""
    claimed: Mapping[str, int]
    """Flavor → free nodes that runs within their nominal quotas wait for."""
    kept_for: Mapping[str, WaitingRun]
    """Flavor → the run that its free nodes are kept for."""
    next_of: Mapping[tuple[str, str], WaitingRun]
    """(queue, flavor) → the run that the others of its queue may not overtake."""

    def of(self, run: WaitingRun) -> str:
        """Why a run waits: one part for each of its options, the best first."""
        if self.room.queues.queue(run.queue) is None:
            return f"queue {run.queue} is not in queues.yml any more"
        obstacles = "; ".join(f"{each.flavor}: {self._of(run, each)}" for each in run.options)
        return f"waits in queue {run.queue} since {clock(run.since)} for {obstacles}"

    def _of(self, run: WaitingRun, option: NodesWanted) -> str:
        wanted = nodes_of(option.nodes)
        if option.shortage is not None:
            return f"{wanted}, {option.shortage}"
        if not self.room.is_affordable(run, option):
            return f"{wanted}, {self._budget_reason(run, option)}"
        flavor = self.room.queues.flavor(option.flavor)
        if flavor is None:
            return f"{wanted}, of a flavor that is not in queues.yml any more"
        if self.room.is_evicted(option.flavor) and option not in self.room.usable(run):
            count = accounts.evictions_of(self.room.document, option.flavor)
            return (
                f"{wanted}, which were taken away {count} times within 24 h, and "
                f"{flavor.evictions_allowed} are allowed"
            )
        limit = self.room.queues.limit(run.queue, option.flavor)
        if limit < flavor.nodes and not self.room.is_within_limit(run, option):
            held = self.room.held[run.queue, option.flavor]
            return f"{wanted}, the queue holds {held} of the {limit} that it may hold at most"
        return f"{wanted}, {self._competition_reason(run, option, flavor)}"

    def _budget_reason(self, run: WaitingRun, option: NodesWanted) -> str:
        queues = self.room.queues
        queue = queues.queue(run.queue)
        spending = accounts.spending_of(self.room.document, run.queue)
        assert queue is not None
        assert queue.budget is not None
        assert spending is not None, "a queue without a budget can afford everything"
        _, next_at = accounts.period_of(queue.budget, self.room.document.at)
        cost = self.room.expected_cost(run, option)
        if cost > queue.budget.amount:
            return (
                f"expected to cost {money(cost, queues.currency)}, more than the whole budget of "
                f"{money(queue.budget.amount, queues.currency)}: raise the budget of queue "
                f"{queue.name}, or cancel the run"
            )
        return (
            f"expected to cost {money(cost, queues.currency)}: of the budget of "
            f"{money(queue.budget.amount, queues.currency)}, "
            f"{money(spending.settled, queues.currency)} are spent and "
            f"{money(self.room.reserved[run.queue], queues.currency)} reserved; "
            f"the next period begins {clock(next_at)}"
        )

    def _competition_reason(self, run: WaitingRun, option: NodesWanted, flavor: Flavor) -> str:
        free = max(0, self.room.free(option.flavor))
        text = f"{free} of {flavor.nodes} are free"
        if free < option.nodes:
            return text
        first = self.next_of.get((run.queue, option.flavor))
        if first is not None and (first.since, first.run) < (run.since, run.run):
            return f"{text}, run {first.run} waits before it since {clock(first.since)}"
        kept_for = self.kept_for.get(option.flavor)
        if kept_for is not None and kept_for.run != run.run:
            return f"{text}, kept for run {kept_for.run}, which waits since {clock(kept_for.since)}"
        claimed = self.claimed.get(option.flavor, 0)
        return f"{text}, {claimed} are claimed by queues below their nominal quotas"


def nodes_of(count: int) -> str:
    """A number of nodes."""
    return "1 node" if count == 1 else f"{count} nodes"


def money(amount: float, currency: str) -> str:
    """An amount, to the hundredth."""
    return f"{amount:,.2f} {currency}"


def clock(moment: datetime) -> str:
    """A date and time of day."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
