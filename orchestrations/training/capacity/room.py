"""Free, held, guaranteed and affordable nodes, computed from one admission document. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import timedelta

from orchestrations.contracts.capacity import Admission, NodesWanted, WaitingRun
from orchestrations.training.capacity import accounts


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
        found, nodes = self.queues.queue(queue), self.held[queue, flavor]
        assert found is not None, "only queues that are there are compared"
        borrowed = accounts.borrowed(self.document, queue, flavor, nodes)
        committed = self._committed[queue, flavor] * borrowed / nodes if nodes else 0.0
        return (self._usage.get((queue, flavor), 0.0) + committed) / found.weight

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
        return accounts.price_of(option.nodes * seconds, price)

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
