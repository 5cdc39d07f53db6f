"""Queues and their nodes: the schema of `queues.yml`, in the folder of the pipelines.

Pure: `handlers.platform.configuration.pipeline_files` reads the file. The terms are Kueue's:
https://kueue.sigs.k8s.io/docs/concepts/
"""

from __future__ import annotations

from datetime import date
from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from orchestrations.configuration.pipeline import SECTIONS, ComputeOption, Name, Pipeline
from orchestrations.configuration.section import ClusterName, Priority, Section, VmSize


class Flavor(Section):
    """A kind of nodes: an Azure ML cluster, the most nodes that runs may hold, and their price."""

    name: Name
    cluster: ClusterName
    nodes: int = Field(ge=1, le=1000)
    """The most nodes that the runs of all queues together may hold at a time."""
    price_per_node_hour: float = Field(ge=0, le=10_000)
    evictions_allowed: int | None = Field(default=None, ge=0)
    """After more evictions within 24 hours, runs prefer another option; None: no limit."""


class Quota(Section):
    """A queue's share of one flavor, in nodes."""

    flavor: Name
    nominal_quota: int = Field(default=0, ge=0)
    """Guaranteed nodes: if others borrow them, the queue gets them back when those jobs end."""
    borrowing_limit: int | None = Field(default=None, ge=0)
    """The most nodes that it may hold above the nominal quota; None: all free nodes."""


class Budget(Section):
    """A queue's budget for a period; periods are counted from Monday, 1970-01-05, UTC."""

    amount: float = Field(gt=0)
    days: int = Field(ge=1, le=366)


class Queue(Section):
    """A queue of runs: its guaranteed nodes, its borrowing limits and its budget."""

    name: Name
    quotas: list[Quota] = Field(min_length=1)
    weight: float = Field(default=1.0, gt=0, le=1000)
    """Its share of borrowed nodes, relative to the weights of the other queues that borrow."""
    budget: Budget | None = None


class Price(Section):
    """The price of a VM size, for runs that are in no queue, and its power, for all runs."""

    size: VmSize
    priority: Priority = "dedicated"
    price_per_node_hour: float = Field(ge=0, le=10_000)
    watts: float | None = Field(default=None, gt=0, le=100_000, exclude_if=lambda it: it is None)
    """The power of a node under load."""


class Queues(Section):
    """The file `queues.yml`."""

    flavors: list[Flavor] = Field(default=[])
    queues: list[Queue] = Field(default=[])
    prices: list[Price] = Field(default=[])
    currency: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")] = "USD"
    """The currency of prices and budgets."""
    prices_as_of: date | None = None
    """When the prices were looked up; Landfall does not read prices from Azure."""
    power_usage_effectiveness: float | None = Field(
        default=None, ge=1, le=10, exclude_if=lambda it: it is None
    )
    """The energy of the data centre for each unit of energy of its nodes."""
    grams_co2e_per_kwh: float | None = Field(
        default=None, ge=0, le=10_000, exclude_if=lambda it: it is None
    )
    """The carbon intensity of the data centre's electricity."""
    usage_half_life_days: float = Field(default=7.0, gt=0, le=366)
    """After so many days, a queue's borrowed usage counts half."""
    reserve_after_seconds: float = Field(default=600.0, ge=0, le=7 * 86_400)
    """Runs that come later may overtake a run that does not fit, until it has waited so long."""
    alert_after_seconds: float = Field(default=3600.0, gt=0)
    """Operators are alerted to a run that waits for longer than this."""

    @model_validator(mode="after")
    def _consistent(self) -> Queues:
        _refuse_twice("flavors", [flavor.name for flavor in self.flavors])
        _refuse_twice("clusters of flavors", [flavor.cluster for flavor in self.flavors])
        _refuse_twice("queues", [queue.name for queue in self.queues])
        _refuse_twice("prices", [f"{price.size} ({price.priority})" for price in self.prices])
        flavors = {flavor.name for flavor in self.flavors}
        for queue in self.queues:
            names = [quota.flavor for quota in queue.quotas]
            _refuse_twice(f"quotas of queue {queue.name}", names)
            if unknown := sorted(set(names) - flavors):
                raise ValueError(
                    f"queue {queue.name} has a quota of the flavor {unknown[0]!r}, which is not "
                    f"among the flavors: {', '.join(sorted(flavors))}"
                )
        for flavor in self.flavors:
            nominal = self.nominal_quotas(flavor.name)
            if nominal > flavor.nodes:
                raise ValueError(
                    f"the nominal quotas of flavor {flavor.name} are {nominal} nodes together, and "
                    f"it has {flavor.nodes}: they could not be guaranteed"
                )
        return self

    def flavor(self, name: str) -> Flavor | None:
        """The flavor of that name."""
        return next((each for each in self.flavors if each.name == name), None)

    def flavor_of(self, cluster: str) -> Flavor | None:
        """The flavor of a cluster's nodes."""
        return next((each for each in self.flavors if each.cluster == cluster), None)

    def price(self, size: str, priority: str) -> Price | None:
        """The price of a VM size; Azure does not distinguish upper and lower case."""
        return next(
            (
                each
                for each in self.prices
                if (each.size.lower(), each.priority) == (size.lower(), priority)
            ),
            None,
        )

    def queue(self, name: str) -> Queue | None:
        """The queue of that name."""
        return next((each for each in self.queues if each.name == name), None)

    def quota(self, queue: str, flavor: str) -> Quota | None:
        """A queue's quota of a flavor; None if it has none."""
        found = self.queue(queue)
        return found and next((each for each in found.quotas if each.flavor == flavor), None)

    def nominal_quotas(self, flavor: str) -> int:
        """The nominal quotas of all queues together for a flavor, in nodes."""
        return sum(
            quota.nominal_quota
            for queue in self.queues
            for quota in queue.quotas
            if quota.flavor == flavor
        )

    def limit(self, queue: str, flavor: str) -> int:
        """The most nodes of a flavor that a queue may hold."""
        quota, kind = self.quota(queue, flavor), self.flavor(flavor)
        if quota is None or kind is None:
            return 0
        if quota.borrowing_limit is None:
            return kind.nodes
        return min(quota.nominal_quota + quota.borrowing_limit, kind.nodes)


def mismatch(pipeline: Pipeline, queues: Queues | None) -> tuple[tuple[int | str, ...], str] | None:
    """The key of a pipeline that contradicts `queues.yml`, and why; None if all keys agree.

    Only runs in queues may use a flavor's cluster: the nodes of other runs would not be counted.
    """
    name = pipeline.queue
    if queues is None:
        return None if name is None else (("queue",), f"there is no queues.yml (value: {name!r})")
    if name is not None and queues.queue(name) is None:
        known = ", ".join(queue.name for queue in queues.queues)
        return ("queue",), f"queues.yml has no such queue; it has {known} (value: {name!r})"
    for stage, (_, compute) in pipeline.jobs.items():
        for number, option in enumerate(compute):
            problem = _mismatch_of(option, name, queues)
            if problem is not None:
                return (*SECTIONS[stage], "compute", number), problem
    return None


def _mismatch_of(option: ComputeOption, queue: str | None, queues: Queues) -> str | None:
    flavor = queues.flavor_of(option.cluster)
    if queue is None:
        if flavor is None:
            return None
        return (
            f"cluster {option.cluster} is flavor {flavor.name} of queues.yml: name a queue in the "
            "pipeline"
        )
    if flavor is None:
        return f"cluster {option.cluster} is of no flavor of queues.yml"
    limit = queues.limit(queue, flavor.name)
    if limit < option.nodes:
        return (
            f"{option.nodes} nodes of cluster {option.cluster} are more than the {limit} that "
            f"queue {queue} may ever hold of flavor {flavor.name}"
        )
    return None


def _refuse_twice(what: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{twice[0]!r} is twice among the {what}")
