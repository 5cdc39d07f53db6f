"""Why a run waits for nodes: one sentence with numbers. Pure.

Times are absolute, so that the sentence does not change while nothing happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from orchestrations.configuration.queues import Flavor
from orchestrations.contracts.capacity import NodesWanted, WaitingRun
from orchestrations.training.capacity import accounts
from orchestrations.training.capacity.room import Room


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
            return f"{wanted}, {self._of_budget(run, option)}"
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
        return f"{wanted}, {self._of_others(run, option, flavor)}"

    def _of_budget(self, run: WaitingRun, option: NodesWanted) -> str:
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

    def _of_others(self, run: WaitingRun, option: NodesWanted, flavor: Flavor) -> str:
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
