"""The workspace's compute: one loop applies the scheduler's decisions and runs jobs.

One transaction of the loop lets parent jobs submit and cancel their children, and then lets the
scheduler decide on nodes.

State is durable before it takes effect: a job is Preparing before its runner exists, and a stop
order is stored before it is sent. After kill -9, `_recover` reads the tables: it kills processes
that still run, lets attempts with a result finish their uploads, and queues the other jobs again,
as Azure ML does after the loss of a node.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import os
import shutil
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Self, TypeVar

import localazure
from localazure.faults.plan import OF_ALLOCATIONS, OF_NODES
from localazure.machinelearning.compute.allocation import Cluster, Node, WaitingJob, advance
from localazure.machinelearning.compute.allocation import Outcome as Schedule
from localazure.machinelearning.compute.clusters import (
    COMPUTES,
    is_low_priority,
    list_clusters,
    principal_on,
)
from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.jobs.folder import JobFolder
from localazure.machinelearning.jobs.processes import FOLDER_VARIABLE, tracking_store
from localazure.machinelearning.jobs.rank_group import kill_marked
from localazure.machinelearning.jobs.resolution import resolve_job
from localazure.machinelearning.jobs.runner_protocol import Outcome, Result, StopOrder, parse_report
from localazure.machinelearning.jobs.states import (
    ACTIVE,
    JOB_TRANSITIONS,
    TERMINAL,
    WAITING,
    JobStatus,
    NodeState,
)
from localazure.machinelearning.jobs.store import (
    JOBS,
    JobRow,
    JobTransaction,
    get_job,
    list_jobs,
    list_nodes,
)
from localazure.machinelearning.parent_jobs import advance_parents, read_trial_metrics
from localazure.machinelearning.store import get_resource
from localazure.machinelearning.workspace import Workspace
from localazure.processes.background import keep_doing
from localazure.processes.pauses import wait_at_most
from localazure.runtime.identity import CLUSTER
from localazure.runtime.roles import RoleAssignments

MAX_RUNNER_FAILURES = 3
"""A job fails if its runner has crashed more often than this."""

RETRY_SECONDS = 1.0

_PACKAGE_PARENT = Path(localazure.__file__).parent.parent

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Compute:
    """Clusters and the jobs on them. Use as an async context manager."""

    def __init__(self, workspace: Workspace, assignments: RoleAssignments) -> None:
        self._workspace = workspace
        self._assignments = assignments
        self._database = workspace.database
        self._clock = workspace.clock
        self._wake = asyncio.Event()
        self._runners: dict[str, Process] = {}
        self._attempts: dict[str, asyncio.Task[None]] = {}
        self._preemptions: set[asyncio.Task[None]] = set()
        self._loop: asyncio.Task[None] | None = None
        self.short_of_quota: frozenset[str] = frozenset()
        """Clusters that would grow further if the quota allowed it."""
        self.short_of_capacity: frozenset[str] = frozenset()
        """Clusters that would grow further if Azure had capacity (an injected fault)."""

    async def __aenter__(self) -> Self:
        await self._recover()
        self._loop = asyncio.create_task(self._schedule())
        return self

    async def __aexit__(self, *_: object) -> None:
        """End all runners immediately; the next start queues their jobs again."""
        running = (self._loop, *self._attempts.values(), *self._preemptions)
        tasks = [task for task in running if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for runner in self._runners.values():
            _close_lifeline(runner)
        await asyncio.gather(*(runner.wait() for runner in self._runners.values()))

    def wake(self) -> None:
        """Wake the scheduler up after a change."""
        self._wake.set()

    async def stop(self, name: str, order: StopOrder) -> None:
        """End the running attempt of a job; the stop order is durable when this returns."""
        await self._write(lambda jobs: jobs.order_stop(name, order))
        self.deliver_stop(name)

    async def _write(self, change: Callable[[JobTransaction], T]) -> T:
        return await self._database.write(
            lambda connection: change(self._workspace.jobs(connection))
        )

    async def _write_at_last(self, name: str, change: Callable[[JobTransaction], T]) -> T:
        """Write a change of a running job; it waits for a disk that is full, for example."""
        return await keep_doing(f"writing the state of job {name}", lambda: self._write(change))

    def deliver_stop(self, name: str) -> None:
        """Send a stored stop order to the runner; a runner that is still starting gets it later."""
        job = get_job(self._database.read, name)
        runner = self._runners.get(name)
        if job is None or job.stop_order is None or runner is None or runner.stdin is None:
            return
        with contextlib.suppress(ConnectionError):  # the runner has just ended
            runner.stdin.write(job.stop_order.to_json().encode() + b"\n")

    async def _schedule(self) -> None:
        while True:
            self._wake.clear()
            try:
                wake_at = await self._schedule_once()
            except Exception:  # the loop must not end: log the error, and retry
                logger.exception("scheduling failed; next attempt in %g s", RETRY_SECONDS)
                wake_at = self._clock() + RETRY_SECONDS
            pause = None if wake_at is None else max(0.0, wake_at - self._clock())
            await wait_at_most(self._wake, pause)

    async def _schedule_once(self) -> float | None:
        """Apply the scheduler's decisions and start jobs.

        Returns:
            When the next timed change is due, in epoch seconds; None without one.
        """
        store = tracking_store(self._workspace.environment)
        metrics = await asyncio.to_thread(read_trial_metrics, self._database.read, store)
        parents, schedule = await self._write(
            lambda jobs: (advance_parents(jobs, metrics), self._advance(jobs))
        )
        self.short_of_quota = frozenset(schedule.short_of_quota)
        self.short_of_capacity = schedule.short_of_capacity
        self._workspace.events.filled.set()
        for name in parents.stop:
            self.deliver_stop(name)
        for name in schedule.started:
            self._start_attempt(name)
            self._preempt_on_purpose(name)
        if parents.has_changed:
            self.wake()
        times = (schedule.wake_at, parents.wake_at)
        return min((at for at in times if at is not None), default=None)

    def _advance(self, jobs: JobTransaction) -> Schedule:
        clusters = tuple(list_clusters(jobs.query))
        plan = functools.partial(
            advance,
            clusters=clusters,
            nodes=tuple(list_nodes(jobs.query)),
            waiting=tuple(
                WaitingJob(name=job.name, cluster=job.cluster, node_count=job.node_count)
                for job in list_jobs(jobs.query, WAITING)
            ),
            configuration=self._workspace.configuration,
            now=jobs.now,
        )
        schedule = plan()
        without_capacity = frozenset(
            cluster.name
            for cluster in clusters
            if cluster.name in schedule.grown and self._is_short(cluster)
        )
        if without_capacity:
            schedule = plan(without_capacity=without_capacity)
        jobs.replace_nodes(schedule.nodes)
        for name in schedule.provisioning:
            jobs.set_status(name, JobStatus.PROVISIONING)
        for name in schedule.started:
            jobs.set_status(name, JobStatus.PREPARING)
        for job in schedule.orphaned:
            message = f"the compute {job.cluster} was deleted"
            jobs.set_error(job.name, "ComputeNotFound", message)
            jobs.set_status(job.name, JobStatus.FAILED)
        return schedule

    def _is_short(self, cluster: Cluster) -> bool:
        operation = f"allocation/{cluster.vm_size or cluster.name}"
        return self._workspace.faults.next(operation, OF_ALLOCATIONS) is not None

    async def preempt(self, cluster: str, number: int, since: float | None = None) -> Node | None:
        """Preempt a node, as Azure does when it needs the machine; return None if it is not there.

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

        node = await self._write(take)
        if node is not None and node.job is not None:
            await self.stop(node.job, StopOrder(outcome=Outcome.PREEMPTED, is_graceful=False))
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

    def _start_attempt(self, name: str) -> None:
        task = asyncio.create_task(self._run_attempt(name), name=f"job {name}")
        self._attempts[name] = task
        task.add_done_callback(lambda done: self._attempt_over(name, done))

    def _attempt_over(self, name: str, task: asyncio.Task[None]) -> None:
        if self._attempts.get(name) is task:
            del self._attempts[name]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("job %s does not continue before the next start", name, exc_info=error)

    async def _run_attempt(self, name: str) -> None:
        try:
            await self._supervise_attempt(name)
        except Exception:  # a defect must not block the job: log and count it
            logger.exception("job %s: supervising its runner failed", name)
            await asyncio.to_thread(kill_marked, self._workspace.job_folder(name).root)
            await self._after_runner_failure(name)

    async def _supervise_attempt(self, name: str) -> None:
        """Run a runner to its end, and store the outcome of the attempt."""
        job = get_job(self._database.read, name)
        resource = get_resource(self._database.read, JOBS, name)
        if job is None or resource is None:
            return
        folder = self._workspace.job_folder(name)
        try:
            spec = resolve_job(self._database.read, name, resource.properties, attempt=job.attempt)
            principal = CLUSTER
            if self._assignments.are_enforced:  # then no datastore has a credential
                principal = principal_on(self._database.read, job.cluster)
            spec = dataclasses.replace(spec, principal=principal)
        except ArmError as error:
            await self._finish(job, _failure(job, error.code, error.message))
            return
        try:
            # A full disk is not the job's fault: it waits for room.
            await keep_doing(
                f"writing the folder of job {name}",
                lambda: asyncio.to_thread(spec.save, folder.root),
            )
            code = await self._supervise(name, folder)
        except OSError as error:  # for example, the limit of processes is reached
            logger.warning("job %s: its runner could not be started: %s", name, error)
            code = None
        result = Result.load(folder.result, job.attempt)
        if code == 0 and result is not None:
            await self._finish(job, result)
        else:
            logger.warning("job %s: its runner ended with code %s", name, code)
            await asyncio.to_thread(kill_marked, folder.root)
            await self._after_runner_failure(name)

    async def _supervise(self, name: str, folder: JobFolder) -> int:
        """Start the runner, store the states that it reports, and return its exit code."""
        runner = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "localazure.machinelearning.jobs.runner",
            str(self._workspace.environment.state),
            str(folder.root),
            stdin=PIPE,
            stdout=PIPE,
            # Only the supervisor may receive Ctrl-C; it ends the runner.
            process_group=0,
            env={
                **os.environ,
                FOLDER_VARIABLE: str(folder.root),
                "PYTHONPATH": str(_PACKAGE_PARENT),
            },
        )
        self._runners[name] = runner
        try:
            self.deliver_stop(name)
            if runner.stdout is not None:
                async for line in runner.stdout:
                    await self._follow(name, parse_report(line))
            return await runner.wait()
        finally:
            if runner.returncode is None:
                _close_lifeline(runner)
            else:
                del self._runners[name]

    async def _follow(self, name: str, status: JobStatus) -> None:
        def enter(jobs: JobTransaction) -> None:
            job = get_job(jobs.query, name)
            # A cancelled job stays CancelRequested while its outputs are uploaded.
            if (
                job is not None
                and job.status is not JobStatus.CANCEL_REQUESTED
                and status in JOB_TRANSITIONS[job.status]
            ):
                jobs.set_status(name, status)

        await self._write_at_last(name, enter)
        self._workspace.events.filled.set()

    async def _finish(self, job: JobRow, result: Result) -> None:
        has_ended = await self._write_at_last(
            job.name, lambda jobs: jobs.finish_attempt(job.name, result)
        )
        self._workspace.events.filled.set()
        if has_ended:
            root = self._workspace.job_folder(job.name).root
            await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)
        self.wake()

    async def _after_runner_failure(self, name: str) -> None:
        """Count a runner's crash; fail the job after too many crashes, else resume it."""
        await self._write_at_last(name, lambda jobs: jobs.count_runner_failure(name))
        job = get_job(self._database.read, name)
        if job is None or job.status not in ACTIVE:
            return
        if job.runner_failures > MAX_RUNNER_FAILURES:
            message = f"the runner of the job died {job.runner_failures} times"
            await self._finish(job, _failure(job, "RunnerFailed", message))
        else:
            await self._resume(job)

    async def _resume(self, job: JobRow) -> None:
        """Finish an attempt that has a result or a stop order; else queue the job again."""
        folder = self._workspace.job_folder(job.name)
        order = job.stop_order
        if Result.load(folder.result, job.attempt) is None and order is not None:
            stopped = Result(
                attempt=job.attempt, outcome=order.outcome, code=order.code, message=order.message
            )
            folder.root.mkdir(parents=True, exist_ok=True)
            stopped.save(folder.result)
        if Result.load(folder.result, job.attempt) is not None:
            self._start_attempt(job.name)  # its runner only uploads the remaining changes
            return
        lost = Result(attempt=job.attempt, outcome=Outcome.PREEMPTED)
        await self._finish(job, lost)

    async def _recover(self) -> None:
        """Recover the jobs of an earlier process after a crash or a restart."""
        folders = self._workspace.jobs_folder
        await asyncio.to_thread(kill_marked, folders)
        ended = {job.name for job in list_jobs(self._database.read, TERMINAL)}
        for path in folders.iterdir():
            if path.name in ended:
                await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)
        for job in list_jobs(self._database.read, ACTIVE):
            await self._resume(job)


def _failure(job: JobRow, code: str, message: str) -> Result:
    return Result(attempt=job.attempt, outcome=Outcome.FAILED, code=code, message=message)


def _close_lifeline(runner: Process) -> None:
    if runner.stdin is not None:
        runner.stdin.close()
