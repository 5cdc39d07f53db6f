"""Runs one attempt of one job: `python -m localazure.machinelearning.jobs.runner STATE JOB_FOLDER`.

1. Upload the changes of an earlier attempt that was killed.
2. Download code, inputs and outputs.
3. Start the processes; synchronise outputs and logs with the blobs while they run.
4. End all processes when one fails, the timeout has passed, or the workspace orders it.
5. Write the outcome to `result.json`; an attempt with a result is never run again.
6. Upload everything a last time.

The workspace starts the runner, reads `{"status": …}` lines from its stdout, and stops it with one
`{"outcome": …}` line on its stdin. The end of stdin means that the workspace has ended: the runner
then kills its descendants and exits; the workspace runs the job again after its next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import shutil
import sys
import time
from functools import partial
from pathlib import Path

from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.data.blobs import (
    PATIENCE_SECONDS,
    BlobStore,
    retry_while_unavailable,
)
from localazure.machinelearning.data.cache import (
    BlobCache,
    NameTooLongError,
    SourceNotFoundError,
)
from localazure.machinelearning.data.log_upload import LogUpload
from localazure.machinelearning.data.output_sync import OutputSync
from localazure.machinelearning.jobs.folder import ENVIRONMENT_LOG, JobFolder
from localazure.machinelearning.jobs.job_python import (
    EnvironmentBuildError,
    JobPython,
    build,
    make_job_python,
)
from localazure.machinelearning.jobs.placeholders import UnknownPlaceholderError
from localazure.machinelearning.jobs.processes import (
    LaunchError,
    Machine,
    output_path,
    plan_processes,
    tracking_store,
)
from localazure.machinelearning.jobs.rank_group import RankGroup, kill_descendants
from localazure.machinelearning.jobs.runner_protocol import Outcome, Result, StopOrder, report
from localazure.machinelearning.jobs.spec import InputMode, JobSpec
from localazure.machinelearning.jobs.states import JobStatus
from localazure.machinelearning.jobs.tracking import ensure_run, logged_artifacts
from localazure.processes.ports import free_ports
from localazure.runtime.environment import Environment
from localazure.storage_client.endpoint import NotFoundError, PreconditionError, StorageError

SYNC_SECONDS = 1.0
# The time between SIGTERM and SIGKILL. Azure ML has such a grace period, too; the default of
# Kubernetes, 30 s, is too long for a person who waits.
STOP_GRACE_SECONDS = 10.0
NOBODY = ""
"""A principal without roles."""
_UNEXPECTED = "ScriptExecution.StreamAccess.Unexpected"
# The text of Azure's data runtime is in Azure/azure-dev#7927 and Azure/azure-sdk-for-python#38826.
NO_IDENTITY = (
    _UNEXPECTED,
    (
        "An unexpected error occurred while resolving AccessToken: CredentialUnavailableError: "
        "ManagedIdentityCredential authentication unavailable. The requested identity has not been "
        "assigned to this resource. (The cluster has no managed identity, and the datastores have "
        "no credential: give it one that infra/roles.json names.)"
    ),
)

NOT_BUILT = (
    "{} is not built: the job runs in {}, which runs localazure. What the job installs is its own. "
    '("environments": "build" in azure-ml.json builds conda files of python and pip.)\n'
)

logger = logging.getLogger("localazure.machinelearning.jobs.runner")


class Runner:
    """Runs one attempt."""

    def __init__(self, environment: Environment, folder: JobFolder, spec: JobSpec) -> None:
        self._environment = environment
        self._folder = folder
        self._spec = spec
        # Without a principal nothing is fetched, and so nothing is uploaded.
        self._store = BlobStore(environment, spec.principal or NOBODY)
        self._stop: asyncio.Future[StopOrder] = asyncio.get_running_loop().create_future()
        self._group = RankGroup(folder.working_directory)
        self._has_fetched = False
        for path in (*folder.captured.values(), folder.user_logs):
            path.mkdir(parents=True, exist_ok=True)
        self._outputs = [self._output_sync(name) for name in spec.outputs]
        self._captured = [
            OutputSync(self._store, spec.artifacts.child(name), path, folder.sync_state(f"_{name}"))
            for name, path in folder.captured.items()
        ]
        self._logs = LogUpload(self._store, spec.artifacts.child("user_logs"), folder.user_logs)

    async def run(self) -> None:
        """Run the attempt; if it has a result of an earlier runner, only upload the changes."""
        lifeline = asyncio.create_task(self._follow_orders())
        result = Result.load(self._folder.result, self._spec.attempt)
        is_interrupted = result is not None
        if result is None:
            result = await self._attempt()
            result.save(self._folder.result)
        report(JobStatus.FINALIZING)
        if is_interrupted or self._has_fetched:
            await asyncio.to_thread(self._upload_everything, result)
        lifeline.cancel()

    async def _attempt(self) -> Result:
        if self._spec.principal is None:
            return self._result(Outcome.FAILED, *NO_IDENTITY)
        try:
            await asyncio.to_thread(self._recover)
            fetching = asyncio.ensure_future(asyncio.to_thread(self._fetch))
            await asyncio.wait({fetching, self._stop}, return_when=asyncio.FIRST_COMPLETED)
            if not fetching.done():
                return self._stopped()
            python = await fetching
            if self._stop.done():
                return self._stopped()
            return await self._run_processes(python)
        except (
            StorageError,
            LaunchError,
            EnvironmentBuildError,
            OSError,
            UnknownPlaceholderError,
        ) as error:
            return self._result(Outcome.FAILED, *explain(error, self._spec.principal))
        finally:
            await self._group.kill()

    def _recover(self) -> None:
        """Upload the changes of an earlier attempt, before downloads overwrite them."""
        targets = (self._spec.artifacts, *(each.target for each in self._spec.outputs.values()))
        for folder in {(each.account, each.container): each for each in targets}.values():
            retry_while_unavailable(partial(self._store.ensure_container, folder))
        if self._spec.attempt > 1:
            for sync in (*self._outputs, *self._captured):
                retry_while_unavailable(partial(sync.push, is_final=True))

    def _fetch(self) -> JobPython:
        """Create the working directory, the inputs, the outputs and the Python of the job."""
        captured = self._folder.captured.values()
        for path in self._folder.working_directory.iterdir():
            if path not in captured:
                _remove(path)
        cache_folder = self._environment.part_folder("machinelearning") / "cache"
        cache = BlobCache(cache_folder, self._store)
        if self._spec.code is not None:
            folder = self._folder.working_directory
            _materialize(cache, "code", self._spec.code, folder, InputMode.DOWNLOAD)
        for name, entry in self._spec.inputs.items():
            if entry.mode is not InputMode.LITERAL:
                _remove(self._folder.input(name))
            if entry.url:
                # Imported here: it loads the SDK, and few jobs have an input on the web.
                from localazure.machinelearning.data.public_inputs import fetch_public  # noqa: PLC0415

                fetch_public(entry.url, self._folder.input(name))
            if entry.source is not None:
                _materialize(cache, name, entry.source, self._folder.input(name), entry.mode)
        for name, sync in zip(self._spec.outputs, self._outputs, strict=True):
            if self._spec.outputs[name].downloads_first:
                retry_while_unavailable(sync.download)
        self._has_fetched = True  # now the log of the environment may be uploaded
        return self._make_python()

    def _make_python(self) -> JobPython:
        packages, built = self._spec.packages, None
        with (self._folder.user_logs / ENVIRONMENT_LOG).open("a") as log:
            if packages is None:
                name = self._spec.environment_id.rpartition("/environments/")[2]
                log.write(NOT_BUILT.format(name.replace("/versions/", ":"), sys.executable))
            else:
                folder = self._environment.part_folder("machinelearning") / "environments"
                built = build(packages, folder, log)
                log.write(f"The job runs in {built}, which was built for its environment.\n")
        return make_job_python(self._folder.python, built)

    async def _run_processes(self, python: JobPython) -> Result:
        store = tracking_store(self._environment)
        ensure_run(store, self._spec.experiment, self._spec.name, now=time.time())
        machine = this_machine(len(self._spec.tasks) or 1, python)
        plan = plan_processes(self._spec, self._folder, self._environment, machine)
        self._group.start(plan)
        report(JobStatus.RUNNING)
        syncing = asyncio.create_task(self._sync_while_running())
        try:
            return await self._watch()
        finally:
            syncing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await syncing

    async def _watch(self) -> Result:
        """Wait until all processes end; stop them after a failure, an order or the timeout."""
        loop = asyncio.get_running_loop()
        seconds = self._spec.timeout_seconds
        deadline = None if seconds is None else loop.time() + seconds
        pending = set(self._group.exits)
        while pending:
            remaining = None if deadline is None else max(0.0, deadline - loop.time())
            done, _ = await asyncio.wait(
                {*pending, self._stop}, timeout=remaining, return_when=asyncio.FIRST_COMPLETED
            )
            ended = [exit_ for exit_ in self._group.exits if exit_ in pending and exit_.done()]
            pending.difference_update(ended)
            for failure in (exit_.result() for exit_ in ended if exit_.result().code != 0):
                await self._group.stop(grace_seconds=STOP_GRACE_SECONDS)
                return self._result(Outcome.FAILED, "JobFailed", failure.describe())
            if self._stop.done():
                if self._stop.result().is_graceful:
                    await self._group.stop(grace_seconds=STOP_GRACE_SECONDS)
                return self._stopped()
            if not done:
                await self._group.stop(grace_seconds=STOP_GRACE_SECONDS)
                message = f"the job ran longer than its limits.timeout of {seconds:g} s"
                return self._result(Outcome.CANCELED, "JobTimedOut", message)
        return self._result(Outcome.COMPLETED)

    async def _sync_while_running(self) -> None:
        while True:
            await asyncio.sleep(SYNC_SECONDS)
            # Shielded: a thread cannot be cancelled, so wait for it.
            pushing = asyncio.ensure_future(asyncio.to_thread(self._push))
            try:
                await asyncio.shield(pushing)
            except asyncio.CancelledError:
                await pushing
                raise

    def _push(self) -> None:
        for step in (*self._outputs, *self._captured, self._logs):
            try:
                step.push(is_final=False)
            except (StorageError, OSError) as error:
                logger.warning("job %s: upload postponed: %s", self._spec.name, error)

    def _upload_everything(self, result: Result) -> None:
        """Make the last upload; wait for storage without a limit, so that nothing is lost."""
        refusals: list[str] = []
        for step in (*self._outputs, *self._captured, self._logs, *self._logged()):
            try:
                retry_while_unavailable(
                    partial(step.push, is_final=True), give_up_after_seconds=None
                )
            except StorageError as error:
                logger.warning("job %s: an upload was refused: %s", self._spec.name, error)
                refusals.append(str(error))
        if refusals and result.outcome is Outcome.COMPLETED:
            failed = self._result(Outcome.FAILED, "OutputUploadFailed", "; ".join(refusals))
            failed.save(self._folder.result)

    def _logged(self) -> list[OutputSync]:
        """What the job has logged through MLflow, among its artifacts as on Azure."""
        store = tracking_store(self._environment)
        logged = logged_artifacts(store, self._spec.experiment, self._spec.name)
        return [
            OutputSync(
                self._store,
                self._spec.artifacts.child(path) if path else self._spec.artifacts,
                folder,
                self._folder.sync_state(f"_mlflow-{number}"),
            )
            for number, (path, folder) in enumerate(logged.items())
            if folder.is_dir()
        ]

    def _output_sync(self, name: str) -> OutputSync:
        output = self._spec.outputs[name]
        folder = self._folder.output(name)
        state = self._folder.sync_state(name)
        if not output.is_file:
            return OutputSync(self._store, output.target, folder, state)
        only = output_path(self._spec, self._folder, name).name
        parent = output.target.path.rpartition("/")[0]
        target = dataclasses.replace(output.target, path=parent)
        return OutputSync(self._store, target, folder, state, only=only)

    def _result(self, outcome: Outcome, code: str = "", message: str = "") -> Result:
        return Result(attempt=self._spec.attempt, outcome=outcome, code=code, message=message)

    def _stopped(self) -> Result:
        return self._stop.result().result(self._spec.attempt)

    async def _follow_orders(self) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            if not self._stop.done():
                self._stop.set_result(StopOrder.parse(line))
        kill_descendants()
        os._exit(1)


def explain(error: Exception, principal: str) -> tuple[str, str]:
    """Code and message of an error that prevented the start of the processes.

    Args:
        error: of a download, or of the start.
        principal: the job's identity.
    """
    match error:
        case SourceNotFoundError():
            return "InputNotFound", str(error)
        case NameTooLongError():
            return _UNEXPECTED, f"File name too long (os error 36): {error}"
        case StorageError():
            return _explain_storage(error, principal)
        case EnvironmentBuildError():
            return "EnvironmentBuildFailed", str(error)
        case OSError():
            return "LaunchFailed", f"the processes could not be started: {error}"
        case _:
            return "LaunchFailed", str(error)


def _explain_storage(error: StorageError, principal: str) -> tuple[str, str]:
    """As `explain`; the first two are answered in the words of Azure's azureml-dataprep-rslex."""
    match error:
        case PreconditionError():
            return _UNEXPECTED, f"Data source was modified on remote during read: {error}"
        case NotFoundError():
            return "ScriptExecution.StreamAccess.NotFound", (
                "The requested stream was not found. Please make sure the request uri is correct: "
                f"{error}"
            )
        case _ if error.is_transient:
            return "StorageUnavailable", (
                f"storage was unavailable for {PATIENCE_SECONDS:g} s: {error}; see the log of the "
                "part storage, then submit the job again"
            )
        case _:
            return "StorageRefused", (
                f"storage refused: {error}; correct the paths of the job, or give the principal "
                f"{principal!r} its role in infra/roles.json"
            )


def _materialize(
    cache: BlobCache, name: str, source: BlobPath, target: Path, mode: InputMode
) -> None:
    try:
        cache.materialize(source, target, is_mount=mode is InputMode.MOUNT)
    except SourceNotFoundError as error:
        raise SourceNotFoundError(f"input {name!r}: {error}") from error


def this_machine(ports: int, python: JobPython) -> Machine:
    """The properties of this machine that a launch uses, with this number of free ports."""
    path = python.variables(os.environ.get("PATH", os.defpath))["PATH"]
    return Machine(
        environment=os.environ,
        python=python,
        cpu_count=os.cpu_count() or 1,
        loopback_interface="lo" if sys.platform == "linux" else "lo0",
        is_root=os.geteuid() == 0,
        free_ports=tuple(free_ports(ports)),
        mpirun=shutil.which("mpirun", path=path),
    )


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


async def _main(state: Path, root: Path) -> None:
    report(JobStatus.PREPARING)
    await Runner(Environment.load(state), JobFolder(root), JobSpec.load(root)).run()
    # No normal return: asyncio would wait for the threads of an abandoned download.
    os._exit(0)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    asyncio.run(_main(Path(sys.argv[1]), Path(sys.argv[2])))
