"""The attempts of command jobs: each has a runner, a process that this one starts and follows.

State is durable before it takes effect: a job is Preparing before its runner exists, and a stop
order is stored before it is sent. After kill -9, `recover` reads the tables: it kills processes
that still run, lets attempts with a result finish their uploads, and queues the other jobs again,
as Azure ML does after the loss of a node.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import shutil
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import localazure
from localazure.machinelearning.compute.clusters import principal_on
from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.jobs.folder import JobFolder, jobs_folder
from localazure.machinelearning.jobs.pip_environment import find_environment
from localazure.machinelearning.jobs.processes import FOLDER_VARIABLE
from localazure.machinelearning.jobs.rank_group import kill_marked
from localazure.machinelearning.jobs.resolution import resolve_job
from localazure.machinelearning.jobs.runner_protocol import (
    Outcome,
    Result,
    StopOrder,
    parse_report,
)
from localazure.machinelearning.jobs.spark import as_command
from localazure.machinelearning.jobs.states import ACTIVE, JOB_TRANSITIONS, TERMINAL, JobStatus
from localazure.machinelearning.jobs.store import (
    JOBS,
    JobRow,
    JobTransaction,
    get_job,
    list_jobs,
    write_jobs,
)
from localazure.machinelearning.store import get_resource
from localazure.machinelearning.workspace import Workspace
from localazure.processes.background import cancel, keep_doing
from localazure.runtime.identity import CLUSTER
from localazure.runtime.roles import RoleAssignments

MAX_RUNNER_FAILURES = 3
"""A job fails if its runner has crashed more often than this."""

_PACKAGE_PARENT = Path(localazure.__file__).parent.parent

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Attempts:
    """The attempts that run now.

    Args:
        workspace: has the jobs.
        assignments: say whether jobs need an identity to use data.
        on_end: called when an attempt has ended and its nodes are free.
    """

    def __init__(
        self, workspace: Workspace, assignments: RoleAssignments, on_end: Callable[[], None]
    ) -> None:
        self._workspace = workspace
        self._assignments = assignments
        self._on_end = on_end
        self._database = workspace.database
        self._runners: dict[str, Process] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def close(self) -> None:
        """End all runners immediately; the next start queues their jobs again."""
        await cancel(*self._tasks.values())
        for runner in self._runners.values():
            _close_lifeline(runner)
        await asyncio.gather(*(runner.wait() for runner in self._runners.values()))

    async def stop(self, name: str, order: StopOrder) -> None:
        """End the running attempt of a job; the stop order is durable when this returns."""
        await write_jobs(self._workspace, lambda jobs: jobs.order_stop(name, order))
        self.deliver_stop(name)

    def deliver_stop(self, name: str) -> None:
        """Send a stored stop order to the runner; a runner that is still starting gets it later."""
        job = get_job(self._database.read, name)
        runner = self._runners.get(name)
        if job is None or job.stop_order is None or runner is None or runner.stdin is None:
            return
        with contextlib.suppress(ConnectionError):  # the runner has just ended
            runner.stdin.write(job.stop_order.to_json().encode() + b"\n")

    async def recover(self) -> None:
        """Recover the jobs of an earlier process after a crash or a restart."""
        folders = jobs_folder(self._workspace.environment)
        await asyncio.to_thread(kill_marked, folders)
        ended = {job.name for job in list_jobs(self._database.read, TERMINAL)}
        for path in folders.iterdir():
            if path.name in ended:
                await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)
        for job in list_jobs(self._database.read, ACTIVE):
            await self._resume(job)

    def start(self, name: str) -> None:
        """Start the attempt of a job that is Preparing."""
        task = asyncio.create_task(self._run(name), name=f"job {name}")
        self._tasks[name] = task
        task.add_done_callback(lambda done: self._on_done(name, done))

    def _on_done(self, name: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(name) is task:
            del self._tasks[name]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("job %s does not continue before the next start", name, exc_info=error)

    async def _run(self, name: str) -> None:
        try:
            await self._supervise(name)
        except Exception:  # a defect must not block the job: log and count it
            logger.exception("job %s: supervising its runner failed", name)
            await asyncio.to_thread(kill_marked, self._folder(name).root)
            await self._handle_runner_failure(name)

    async def _supervise(self, name: str) -> None:
        """Run a runner to its end, and store the outcome of the attempt."""
        job = get_job(self._database.read, name)
        resource = get_resource(self._database.read, JOBS, name)
        if job is None or resource is None:
            return
        folder = self._folder(name)
        try:
            command = as_command(name, resource.properties)
            spec = resolve_job(self._database.read, name, command, attempt=job.attempt)
            principal = CLUSTER
            if self._assignments.are_enforced:  # then no datastore has a credential
                principal = principal_on(self._database.read, job.cluster)
            configuration = self._workspace.configuration
            server = configuration.mlflow_server
            spec = dataclasses.replace(spec, principal=principal, mlflow_server=server)
            if configuration.environments == "build":
                packages = find_environment(self._database.read, spec.environment_id)
                spec = dataclasses.replace(spec, packages=packages)
        except ArmError as error:
            await self._finish(job, _failure(job, error.code, error.message))
            return
        try:
            # A full disk is not the job's fault: it waits for room.
            await keep_doing(
                f"writing the folder of job {name}",
                lambda: asyncio.to_thread(spec.save, folder.root),
            )
            code = await self._follow_runner(name, folder)
        except OSError as error:  # for example, the limit of processes is reached
            logger.warning("job %s: its runner could not be started: %s", name, error)
            code = None
        result = Result.load(folder.result, job.attempt)
        if code == 0 and result is not None:
            await self._finish(job, result)
        else:
            logger.warning("job %s: its runner ended with code %s", name, code)
            await asyncio.to_thread(kill_marked, folder.root)
            await self._handle_runner_failure(name)

    async def _follow_runner(self, name: str, folder: JobFolder) -> int:
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
                    await self._enter(name, parse_report(line))
            return await runner.wait()
        finally:
            if runner.returncode is None:
                _close_lifeline(runner)
            else:
                del self._runners[name]

    async def _enter(self, name: str, status: JobStatus) -> None:
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

    async def _finish(self, job: JobRow, result: Result) -> None:
        has_ended = await self._write_at_last(
            job.name, lambda jobs: jobs.finish_attempt(job.name, result)
        )
        if has_ended:
            root = self._folder(job.name).root
            await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)
        self._on_end()

    async def _handle_runner_failure(self, name: str) -> None:
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
        folder = self._folder(job.name)
        order = job.stop_order
        if Result.load(folder.result, job.attempt) is None and order is not None:
            folder.root.mkdir(parents=True, exist_ok=True)
            order.result(job.attempt).save(folder.result)
        if Result.load(folder.result, job.attempt) is not None:
            self.start(job.name)  # its runner only uploads the remaining changes
            return
        await self._finish(job, Result(attempt=job.attempt, outcome=Outcome.PREEMPTED))

    def _folder(self, name: str) -> JobFolder:
        return JobFolder(jobs_folder(self._workspace.environment) / name)

    async def _write_at_last(self, name: str, change: Callable[[JobTransaction], T]) -> T:
        """Write a change of a running job; it waits for a disk that is full, for example."""
        return await keep_doing(
            f"writing the state of job {name}", lambda: write_jobs(self._workspace, change)
        )


def _failure(job: JobRow, code: str, message: str) -> Result:
    return Result(attempt=job.attempt, outcome=Outcome.FAILED, code=code, message=message)


def _close_lifeline(runner: Process) -> None:
    if runner.stdin is not None:
        runner.stdin.close()
