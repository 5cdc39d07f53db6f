"""Admission of runs to nodes: its one document, and the activities that change it."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from orchestrations.capacity.queues import Queues
from orchestrations.contracts.base import ActivityRequest, Contract
from orchestrations.contracts.costs import MonthlyCost, RunCost
from orchestrations.contracts.jobs import CancelRequest
from orchestrations.pipeline import ComputeOption


class NodesWanted(Contract):
    """One of the ways in which a run could get its nodes: all of them, or none."""

    flavor: str
    nodes: int
    shortage: str | None = None
    """Why Azure ML has no such nodes for it now."""


class WaitingRun(Contract):
    """A run that waits for nodes."""

    run: str
    pipeline: str
    queue: str
    options: tuple[NodesWanted, ...]
    """The best one first."""
    since: datetime
    ranking: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """Why the options are in another order than the pipeline's."""
    alerted: bool = False
    """Operators know that it waits for long."""


class AdmittedRun(Contract):
    """A run that holds nodes, until its job has ended."""

    run: str
    pipeline: str
    queue: str
    flavor: str
    nodes: int
    since: datetime
    price_per_node_hour: float
    expected_seconds: float
    """How long its job is expected to take: the budget is reserved for so long."""


class BorrowedUsage(Contract):
    """How much a queue has borrowed of a flavor of late."""

    queue: str
    flavor: str
    node_seconds: float
    """Above the nominal quota; what was borrowed a half-life ago counts half."""


class Spending(Contract):
    """A queue's spending in a budget's period."""

    queue: str
    period_begins_at: datetime
    settled: float
    """Of runs whose jobs have ended in this period."""
    alerted: bool = False
    """Operators know that its runs wait for the next period."""


class Eviction(Contract):
    """Azure took nodes of a job away, and queued it again."""

    flavor: str
    at: datetime


class JobLengths(Contract):
    """How long the last jobs of a pipeline took, the newest last, in seconds."""

    pipeline: str
    seconds: tuple[float, ...]


class Admission(Contract):
    """The document that admission is decided by, and nothing else."""

    queues: Queues
    """As they were deployed when it was written."""
    at: datetime
    """When it was brought up to date."""
    waiting: tuple[WaitingRun, ...] = ()
    admitted: tuple[AdmittedRun, ...] = ()
    usage: tuple[BorrowedUsage, ...] = ()
    spending: tuple[Spending, ...] = ()
    lengths: tuple[JobLengths, ...] = ()
    costs: tuple[MonthlyCost, ...] = ()
    """Of this month and the one before."""
    evictions: tuple[Eviction, ...] = ()
    """Of the last 24 hours, of jobs that have ended."""


class RankedOptions(Contract):
    """A pipeline's compute options in the order in which its run tries them."""

    options: tuple[ComputeOption, ...]
    reason: str | None = None
    """Why it is not the pipeline's order; None: it is."""


class RankOptions(ActivityRequest[RankedOptions]):
    """Input of `rank_options`: the compute options of a pipeline, by measured efficiency."""

    pipeline: str
    options: list[ComputeOption]
    """The best one first, as the pipeline has them."""
    minimum_efficiency: float
    """The pipeline's `minimum_scaling_efficiency`."""


class Refusal(Contract):
    """Azure ML has refused a cluster with the nodes of a compute option for want of quota."""

    cluster: str
    nodes: int
    message: str


class Admitted(Contract):
    """Whether a run has got its nodes."""

    option: ComputeOption | None = None
    """The compute option that it was admitted to; None: it waits."""
    reason: str = ""
    """Why it waits, in one sentence with numbers."""
    since: datetime
    """When it asked first, or when it was admitted."""
    cancel: CancelRequest | None = None
    """A request to cancel the run; it was not admitted then."""


class RequestNodes(ActivityRequest[Admitted]):
    """Input of `request_nodes`: one compute option's nodes for a run, all of them or none."""

    run: str
    pipeline: str
    queue: str
    options: list[ComputeOption]
    """The best one first."""
    refusals: tuple[Refusal, ...] = ()
    """Options that Azure ML has refused to this run."""
    ranking: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """Why the options are in another order than the pipeline's."""


class NodesReturned(Contract):
    """Whether a run's nodes were given back."""

    returned: bool
    """False: its job has not ended yet. Reconciliation gives them back when it has."""
    cost: RunCost | None = None
    """None: it never held any."""


class ReturnNodes(ActivityRequest[NodesReturned]):
    """Input of `return_nodes`: a run needs no nodes any more."""

    run: str
