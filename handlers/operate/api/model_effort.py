"""What it took to get a model version: its runs' and rollouts' nodes, cost and energy. Pure.

Energy and carbon are estimates, after Lacoste et al., Quantifying the Carbon Emissions of Machine
Learning, https://arxiv.org/abs/1910.09700. `queues.yml` has the numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass
from datetime import timedelta

from handlers.platform.run_records import cost_by_size, node_hours
from orchestrations.configuration.deploy import Deploy, OnlineDeploy
from orchestrations.configuration.queues import Queues
from orchestrations.contracts.rollouts import RolloutState, RolloutStatus
from orchestrations.contracts.runs import RunCost
from orchestrations.contracts.training import RunRecord, UsedCompute

UNKNOWN = "not known"
NOT_ENDED = "has not ended"
FORMULA = (
    "node-hours x watts x power usage effectiveness, x g CO2e per kWh, after Lacoste et al., "
    "Quantifying the Carbon Emissions of Machine Learning, https://arxiv.org/abs/1910.09700"
)


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
    def row(self) -> tuple[str, ...]:
        """Id, state, node-hours, cost and why, for people."""
        hours, cost = (UNKNOWN,) * 2 if self.hours is None else (f"{self.hours:.2f}", "no price")
        if self.cost is not None:
            cost = f"{self.cost.amount:.2f} {self.cost.currency}"
        return self.id, self.state, hours, cost, self.why


def run_use(record: RunRecord) -> Use:
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


def rollout_use(
    status: RolloutStatus,
    end: RolloutState | None,
    trial: timedelta | None,
    deploy: Deploy | None,
    queues: Queues,
) -> Use:
    """The nodes of a rollout's trial, by the size and number that `pipeline.yml` has now."""
    compute, hours, cost, why = None, None, None, "no begin or no end is recorded"
    if not isinstance(deploy, OnlineDeploy):
        why = "pipeline.yml has no deploy.instance_type"
    elif trial is not None:
        size, nodes = deploy.instance_type, deploy.instance_count
        compute = UsedCompute(cluster="", size=size, priority="dedicated", nodes=nodes)
        hours, why = nodes * trial.total_seconds() / 3600, f"{nodes} x {size}, test and bake"
        cost = cost_by_size(queues, compute, hours)
    return Use(
        id=status.id,
        state=end or (NOT_ENDED if trial is None else "live"),
        compute=compute,
        hours=hours,
        cost=cost,
        why=why,
    )


def describe_total(uses: Sequence[Use], kind: str, what: str) -> str:
    """The sums of node-hours and costs, and how many uses have each."""
    hours = [use.hours for use in uses if use.hours is not None]
    costs = [use.cost for use in uses if use.cost is not None]
    told = f"{sum(hours):.2f} node-hours of {what}{_part(hours, uses, kind)}"
    if not costs:
        return f"{told}; no price is known"
    amount = sum(cost.amount for cost in costs)
    return f"{told}, {amount:.2f} {costs[-1].currency}{_part(costs, hours, kind)}"


def _part(known: Sized, of: Sized, kind: str) -> str:
    return "" if len(known) == len(of) else f" for {len(known)} of {len(of)} {kind}"


def emissions(uses: Iterable[Use], queues: Queues) -> dict[str, str]:
    """Energy by VM size, and carbon: each is computed, or says what `queues.yml` lacks for it."""
    hours: defaultdict[tuple[str, str], float] = defaultdict(float)
    for use in uses:
        if use.compute is not None and use.hours:
            hours[use.compute.size, use.compute.priority] += use.hours
    told: dict[str, str] = {}
    kwh: list[float] = []
    effectiveness, grams = queues.power_usage_effectiveness, queues.grams_co2e_per_kwh
    for (size, priority), spent in sorted(hours.items()):
        name, price = f"{size} ({priority})", queues.price(size, priority)
        watts = price and price.watts
        if watts is None or effectiveness is None:
            lacks = f"watts of {name}" if watts is None else "power_usage_effectiveness"
            told[f"energy of {name}"] = f"{UNKNOWN}: queues.yml gives no {lacks}"
        else:
            kwh.append(spent * watts * effectiveness / 1000)
            factors = f"{spent:.2f} node-hours x {watts:g} W x {effectiveness:g}"
            told[f"energy of {name}"] = f"{factors} = {kwh[-1]:,.3f} kWh"
    energy, part = sum(kwh), _part(kwh, hours, "VM sizes")
    if grams is None:
        told["carbon"] = f"{UNKNOWN}: queues.yml gives no grams_co2e_per_kwh"
    elif not kwh:
        told["carbon"] = f"{UNKNOWN}: no energy is known"
    else:
        carbon = f"{energy:,.3f} kWh x {grams:g} g CO2e per kWh = {energy * grams:,.0f} g CO2e"
        told["carbon"] = carbon + part
    return {**told, "formula": FORMULA}
