"""The loop that moves jobs on: a pass runs after each change, and when a timed change is due.

One transaction of a pass lets sweeps and pipelines submit and cancel their children, and then
allocates nodes to waiting jobs. After it, the attempts of the jobs that got nodes start. A sweep or
pipeline whose pass raises an exception fails with it; the others continue.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Self

from localazure.faults.plan import OF_ALLOCATIONS, OF_NODES
from localazure.machinelearning.compute.allocation import (
    Allocation,
    Cluster,
    Node,
    NodeState,
    WaitingJob,
    allocate_nodes,
)
from localazure.machinelearning.compute.clusters import COMPUTES, is_low_priority, list_clusters
from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.jobs.attempts import Attempts
from localazure.machinelearning.jobs.parents import PassResult, begin
from localazure.machinelearning.jobs.processes import tracking_store
from localazure.machinelearning.jobs.runner_protocol import Outcome, StopOrder
from localazure.machinelearning.jobs.states import WAITING, JobStatus
from localazure.machinelearning.jobs.store import (
    JOBS,
    JobKind,
    JobRow,
    JobTransaction,
    list_jobs,
    list_nodes,
    list_unfinished_parents,
    write_jobs,
)
from localazure.machinelearning.pipelines.advance import PipelinePass
from localazure.machinelearning.store import Resource, get_resource
from localazure.machinelearning.sweeps.advance import SweepPass, TrialMetrics, read_trial_metrics
from localazure.machinelearning.workspace import Workspace
from localazure.processes.background import cancel
from localazure.processes.pauses import wait_at_most
from localazure.runtime.roles import RoleAssignments

RETRY_SECONDS = 1.0

logger = logging.getLogger(__name__)


class ControlLoop:
    """Moves the workspace's jobs on. Use as an async context manager."""

    def __init__(self, workspace: Workspace, assignments: RoleAssignments) -> None:
        self._workspace = workspace
        self._database = workspace.database
        self._clock = workspace.clock
        self._wake = asyncio.Event()
        self._preemptions: set[asyncio.Task[None]] = set()
        self._loop: asyncio.Task[None] | None = None
        self.attempts = Attempts(workspace, assignments, self.wake)
        self.short_of_quota: frozenset[str] = frozenset()
        """Clusters that would grow further if the quota allowed it."""
        self.short_of_capacity: frozenset[str] = frozenset()
        """Clusters that would grow further if Azure had capacity (an injected fault)."""

    async def __aenter__(self) -> Self:
        await self.attempts.recover()
        self._loop = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        """End all runners immediately; the next start queues their jobs again."""
        await cancel(self._loop, *self._preemptions)
        await self.attempts.close()

    def wake(self) -> None:
        """Request a pass after a change."""
        self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                wake_at = await self._run_pass()
            except Exception:  # the loop must not end: log the error, and retry
                logger.exception("a pass over the jobs failed; the next in %g s", RETRY_SECONDS)
                wake_at = self._clock() + RETRY_SECONDS
            pause = None if wake_at is None else max(0.0, wake_at - self._clock())
            await wait_at_most(self._wake, pause)

    async def _run_pass(self) -> float | None:
        """Move all jobs on once.

        Returns:
            When the next timed change is due, in epoch seconds; None without one.
        """
        store = tracking_store(self._workspace.environment)
        metrics = await asyncio.to_thread(read_trial_metrics, self._database.read, store)
        parents, allocation = await write_jobs(
            self._workspace, lambda jobs: (advance_parents(jobs, metrics), self._allocate(jobs))
        )
        self.short_of_quota = frozenset(allocation.short_of_quota)
        self.short_of_capacity = allocation.short_of_capacity
        for name in parents.stop:
            self.attempts.deliver_stop(name)
        for name in allocation.started:
            self.attempts.start(name)
            self._preempt_on_purpose(name)
        if parents.has_changed:
            self.wake()
        times = (allocation.wake_at, parents.wake_at)
        return min((at for at in times if at is not None), default=None)

    def _allocate(self, jobs: JobTransaction) -> Allocation:
        """Allocate nodes to waiting jobs, and store what the jobs and nodes become."""
        clusters = tuple(list_clusters(jobs.query))
        allocate = functools.partial(
            allocate_nodes,
            clusters=clusters,
            nodes=tuple(list_nodes(jobs.query)),
            waiting=tuple(
                WaitingJob(name=job.name, cluster=job.cluster, node_count=job.node_count)
                for job in list_jobs(jobs.query, WAITING)
            ),
            configuration=self._workspace.configuration,
            now=jobs.now,
        )
        allocation = allocate()
        exhausted = frozenset(
            cluster.name
            for cluster in clusters
            if cluster.name in allocation.grown and self._is_short(cluster)
        )
        if exhausted:
            allocation = allocate(exhausted=exhausted)
        jobs.replace_nodes(allocation.nodes)
        for name in allocation.provisioning:
            jobs.set_status(name, JobStatus.PROVISIONING)
        for name in allocation.started:
            jobs.set_status(name, JobStatus.PREPARING)
        for job in allocation.orphaned:
            message = f"the compute {job.cluster} was deleted"
            jobs.set_error(job.name, "ComputeNotFound", message)
            jobs.set_status(job.name, JobStatus.FAILED)
        return allocation

    def _is_short(self, cluster: Cluster) -> bool:
        operation = f"allocation/{cluster.vm_size or cluster.name}"
        return self._workspace.faults.next(operation, OF_ALLOCATIONS) is not None

    async def preempt(self, cluster: str, number: int, since: float | None = None) -> Node | None:
        """Preempt a node, as Azure does when it needs the machine; return None without such a node.

        The node's job is killed without SIGTERM; its outputs are kept, and it is queued again.

        Args:
            cluster: of the node.
            number: of the node.
            since: when the node entered its state: a node that has changed state since then is not
                preempted. None: any state.
        """

        def take(jobs: JobTransaction) -> Node | None:
            nodes = list_nodes(jobs.query)
            for index, node in enumerate(nodes):
                if (node.cluster, node.number) == (cluster, number) and since in (None, node.since):
                    nodes[index] = replace(node, state=NodeState.PREEMPTED, since=jobs.now)
                    jobs.replace_nodes(nodes)
                    return node
            return None

        node = await write_jobs(self._workspace, take)
        if node is not None and node.job is not None:
            order = StopOrder(outcome=Outcome.PREEMPTED, is_graceful=False)
            await self.attempts.stop(node.job, order)
        self.wake()
        return node

    def _preempt_on_purpose(self, name: str) -> None:
        """Preempt nodes of a job as the fault plan says, some time after the job got them."""
        for node in list_nodes(self._database.read):
            if node.job != name:
                continue
            resource = get_resource(self._database.read, COMPUTES, node.cluster)
            if resource is None or not is_low_priority(resource):
                continue
            rule = self._workspace.faults.next(f"nodes/{node.cluster}", OF_NODES)
            if rule is not None:
                task = asyncio.create_task(self._preempt_later(node, rule.seconds))
                self._preemptions.add(task)
                task.add_done_callback(self._preemptions.discard)

    async def _preempt_later(self, node: Node, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.preempt(node.cluster, node.number, node.since)


def advance_parents(jobs: JobTransaction, metrics: Mapping[str, TrialMetrics]) -> PassResult:
    """Make one pass over all unfinished sweeps and pipelines.

    Args:
        jobs: the pass's transaction.
        metrics: of the trials, by sweep.
    """
    result = PassResult()
    for parent in list_unfinished_parents(jobs.query):
        resource = get_resource(jobs.query, JOBS, parent.name)
        if resource is None:
            continue
        job = begin(jobs, parent)
        trials = metrics.get(job.name, TrialMetrics())
        work = functools.partial(_advance_parent, jobs, result, job, resource, trials)
        if (error := _failure_of(work, jobs.connection)) is not None:
            _fail(jobs, job.name, error)
            result.has_changed = True
    return result


def _advance_parent(
    jobs: JobTransaction,
    result: PassResult,
    parent: JobRow,
    resource: Resource,
    metrics: TrialMetrics,
) -> None:
    if parent.kind is JobKind.SWEEP:
        SweepPass(jobs, result, parent, resource, metrics).run()
    else:
        PipelinePass(jobs, result, parent, resource).run()


def _failure_of(work: Callable[[], None], connection: sqlite3.Connection) -> Exception | None:
    """Do the work for one job in a savepoint of the transaction.

    Returns:
        The exception of the work, which changed nothing then; None if it succeeded.

    Raises:
        sqlite3.OperationalError: the database failed, such as by a full disk. That is no job's
            fault: the whole transaction fails, and is tried again.
    """
    connection.execute("SAVEPOINT job")
    try:
        work()
    except sqlite3.OperationalError:
        raise
    except Exception as error:  # noqa: BLE001 - the caller gets it
        connection.execute("ROLLBACK TO job")
        connection.execute("RELEASE job")
        return error
    connection.execute("RELEASE job")
    return None


def _fail(jobs: JobTransaction, name: str, error: Exception) -> None:
    """Store the error of a parent; the next pass ends its children, and then the parent."""
    if isinstance(error, ArmError):
        logger.warning("job %s: %s", name, error.message)
        jobs.set_error(name, error.code, error.message)
    else:
        logger.error("job %s fails", name, exc_info=error)
        jobs.set_error(name, "InternalServerError", f"{type(error).__name__}: {error}")
