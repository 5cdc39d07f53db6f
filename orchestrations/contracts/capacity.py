"""Admission of runs to nodes: its document, and the activities that change it."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from orchestrations.configuration.pipeline import ComputeOption
from orchestrations.configuration.queues import Queues
from orchestrations.configuration.section import ignore_fields
from orchestrations.contracts.base import Contract, QuickRequest
from orchestrations.contracts.runs import CancelRequest, MonthlyCost, RunCost


class NodesWanted(Contract):
    """One option of a run: a flavor, and the number of nodes."""

    flavor: str
    nodes: int
    shortage: str | None = None
    """Why Azure ML cannot provide these nodes now; None if it can."""


class WaitingRun(Contract):
    """A run that waits for nodes."""

    run: str
    pipeline: str
    queue: str
    options: tuple[NodesWanted, ...]
    """The best one first."""
    since: datetime
    alerted: bool = False
    """Whether operators were alerted that it waits for long."""

    _of_earlier_releases = ignore_fields("ranking")

    @property
    def lacks_quota(self) -> bool:
        """Whether one of its options exceeded the quota when the run requested nodes."""
        return any(each.shortage is not None for each in self.options)


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
    """The expected duration of its job, for which the budget is reserved."""


class BorrowedUsage(Contract):
    """A queue's recent borrowing of a flavor."""

    queue: str
    flavor: str
    node_seconds: float
    """Node-seconds above the nominal quota; those of one half-life ago count half."""


class Spending(Contract):
    """A queue's spending in a budget's period."""

    queue: str
    period_begins_at: datetime
    settled: float
    """The cost of runs whose jobs have ended in this period."""
    alerted: bool = False
    """Whether operators were alerted that its runs wait for the next period."""


class Eviction(Contract):
    """Azure took nodes of a job away, and queued it again."""

    flavor: str
    at: datetime


class JobLengths(Contract):
    """The durations of a pipeline's last jobs, in seconds, the newest last."""

    pipeline: str
    seconds: tuple[float, ...]


class Admission(Contract):
    """The document that holds everything that admission decides on."""

    queues: Queues
    """The `queues.yml` that was deployed when the document was written."""
    at: datetime
    """The time up to which usage and spending are counted."""
    waiting: tuple[WaitingRun, ...] = ()
    admitted: tuple[AdmittedRun, ...] = ()
    usage: tuple[BorrowedUsage, ...] = ()
    spending: tuple[Spending, ...] = ()
    lengths: tuple[JobLengths, ...] = ()
    costs: tuple[MonthlyCost, ...] = ()
    """The costs of this month and the previous one."""
    evictions: tuple[Eviction, ...] = ()
    """Evictions in the last 24 hours, from jobs that have ended."""


class Refusal(Contract):
    """Azure ML's refusal of a compute option's nodes, because quota is short."""

    cluster: str
    nodes: int
    message: str


class Admitted(Contract):
    """Whether a run was admitted."""

    option: ComputeOption | None = None
    """The compute option that it was admitted to; None: it waits."""
    reason: str = ""
    """Why it waits, in one sentence with numbers."""
    since: datetime
    """When it first requested nodes, or when it was admitted."""
    cancel: CancelRequest | None = None
    """A request to cancel the run; if set, the run was not admitted."""


class RequestNodes(QuickRequest[Admitted]):
    """Input of `request_nodes`: one compute option's nodes for a run, all of them or none.

    It is asked again and again, and the caller counts the failures.
    """

    run: str
    """The name of the job (`names.stage_job`): a check of a run has a place of its own."""
    pipeline: str
    queue: str
    options: list[ComputeOption]
    """The best one first."""
    refusals: tuple[Refusal, ...] = ()
    """Options that Azure ML has refused to this run."""

    _of_earlier_releases = ignore_fields("ranking")


class NodesReturned(Contract):
    """Whether a run's nodes were given back."""

    returned: bool
    """False: the run's job has not ended yet. Reconciliation gives them back after its end."""
    cost: RunCost | None = None
    """None: the run never held nodes."""


class ReturnNodes(QuickRequest[NodesReturned]):
    """Input of `return_nodes`: a run's nodes are to be released.

    If it fails, reconciliation does it.
    """

    run: str
    heir: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """The run that takes its place in the queue, if both wait."""
