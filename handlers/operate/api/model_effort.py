"""What it took to get a model version: nodes of its runs and rollouts, and their cost. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from handlers.platform.run_records import cost_by_size, node_hours
from orchestrations.configuration.deploy import Deploy, OnlineDeploy
from orchestrations.configuration.queues import Queues
from orchestrations.contracts.rollouts import RolloutState, RolloutStatus
from orchestrations.contracts.runs import RunCost
from orchestrations.contracts.training import RunRecord, UsedCompute

UNKNOWN = "not known"


@dataclass(frozen=True, kw_only=True)
class Use:
    """The nodes of a run's training, or of a rollout's deployment until it was live or ended."""

    id: str
    state: str
    compute: UsedCompute | None
    hours: float | None
    """Nodes times hours; None: not known."""
    cost: RunCost | None
    why: str
    """Why it ended so, or why its hours are not known."""

    @property
    def told_hours(self) -> str:
        """The node-hours for people."""
        return UNKNOWN if self.hours is None else f"{self.hours:.2f}"

    @property
    def told_cost(self) -> str:
        """The cost for people."""
        if self.cost is None:
            return UNKNOWN if self.hours is None else "no price"
        return f"{self.cost.amount:.2f} {self.cost.currency}"


def of_run(record: RunRecord) -> Use:
    """The nodes of a run's training."""
    status = record.status
    return Use(
        id=status.id,
        state=status.state,
        compute=record.compute,
        hours=node_hours(record),
        cost=record.known_cost,
        why=status.reason or (status.error and status.error.message) or "",
    )


def of_rollout(
    asked: RolloutStatus,
    end: RolloutState | None,
    trial: timedelta | None,
    deploy: Deploy | None,
    queues: Queues,
) -> Use:
    """The nodes of a rollout's trial, by the size and number that `pipeline.yml` has now."""
    compute, hours, why = None, None, "no begin or no end is recorded"
    if not isinstance(deploy, OnlineDeploy):
        why = "pipeline.yml has no deploy.instance_type"
    elif trial is not None:
        size, nodes = deploy.instance_type, deploy.instance_count
        compute = UsedCompute(cluster="", size=size, priority="dedicated", nodes=nodes)
        hours, why = nodes * trial.total_seconds() / 3600, f"{nodes} x {size}, test and bake"
    return Use(
        id=asked.id,
        state=end or (asked.state if trial is None else "live"),
        compute=compute,
        hours=hours,
        cost=cost_by_size(queues, compute, hours) if compute and hours is not None else None,
        why=why,
    )


def together(uses: Sequence[Use], kind: str, what: str) -> str:
    """The sum of node-hours and costs, and of how many it is."""
    hours = [use.hours for use in uses if use.hours is not None]
    costs = [use.cost for use in uses if use.cost is not None]
    told = f"{sum(hours):.2f} node-hours of {what}{_part(hours, uses, kind)}"
    if not costs:
        return f"{told}; no price is known"
    amount = sum(cost.amount for cost in costs)
    return f"{told}, {amount:.2f} {costs[-1].currency}{_part(costs, hours, kind)}"


def _part(known: Sequence[object], of: Sequence[object], kind: str) -> str:
    return "" if len(known) == len(of) else f" for {len(known)} of {len(of)} {kind}"
