"""Provisions deployments, and keeps their processes running.

The tables have the desired state before it takes effect. The processes of deployments end with
this part; its next start starts all deployments that were Creating, Updating or Succeeded.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import aiohttp

from localazure.faults.plan import OF_ALLOCATIONS
from localazure.machinelearning.addresses import parse_asset
from localazure.machinelearning.data.cache import SourceNotFoundError
from localazure.machinelearning.errors import ArmError, invalid
from localazure.machinelearning.events import enqueue, model_deployed
from localazure.machinelearning.jobs.resolution import locate
from localazure.machinelearning.serving.data_collector import DataCollector
from localazure.machinelearning.serving.instances import (
    SERVER_LOG,
    DeploymentFolder,
    Instance,
    InstanceEndedError,
    Source,
    start_instance,
)
from localazure.machinelearning.serving.store import (
    Deployment,
    DeploymentState,
    finish_provisioning,
    get_deployment,
    list_deployments,
)
from localazure.machinelearning.store import get_resource
from localazure.machinelearning.workspace import Workspace
from localazure.processes.background import cancel
from localazure.sqlite.database import Database
from localazure.sqlite.query import Query
from localazure.storage_client.endpoint import StorageError

READY_SECONDS = 300.0
MLFLOW_MODEL = "mlflow_model"
# A path, not an import: only deployments of MLflow models need mlflow.
MLFLOW_SCRIPT = Path(__file__).parent / "scripts" / "mlflow_score.py"
RESTART_PAUSES_SECONDS = (0.2, 1.0, 5.0, 10.0)
STORAGE_RETRY_SECONDS = 1.0
LOG_LINES_IN_ERROR = 15

logger = logging.getLogger(__name__)


class _Failed(Exception):
    """A deployment cannot be provisioned; the arguments are the error's code and message."""


class Deployments:
    """The processes of all deployments. An async context manager."""

    def __init__(
        self,
        workspace: Workspace,
        collector: DataCollector,
        database: Database,
        session: aiohttp.ClientSession,
    ) -> None:
        self._workspace = workspace
        self._collector = collector
        self._start_instance = partial(start_instance, workspace, collector)
        self._database = database
        self._session = session
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._serving: dict[tuple[str, str], list[Instance]] = {}

    async def __aenter__(self) -> Self:
        for deployment in list_deployments(self._database.read):
            if deployment.state is not DeploymentState.FAILED:
                self.provision(deployment)
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancel(*self._tasks.values())
        for key in list(self._serving):
            await self._end_serving(key)

    def provision(self, deployment: Deployment) -> None:
        """Start the processes of a deployment, after a PUT or a restart of the part.

        The processes of the previous generation serve until the new processes are ready.
        """
        previous = self._tasks.pop(deployment.key, None)
        self._tasks[deployment.key] = asyncio.create_task(self._run(deployment, previous))

    async def remove(self, deployment: Deployment) -> None:
        """End the processes of a deleted deployment, and delete its files."""
        await cancel(self._tasks.pop(deployment.key, None))
        await self._end_serving(deployment.key)
        await self._collector.forget(deployment)
        folder = DeploymentFolder(self._workspace, deployment)
        await asyncio.to_thread(shutil.rmtree, folder.root, ignore_errors=True)

    def instances(self, endpoint: str, deployment: str) -> Sequence[Instance]:
        """The processes that can serve requests now."""
        instances = self._serving.get((endpoint.lower(), deployment.lower()), [])
        return [instance for instance in instances if instance.is_alive]

    async def _run(self, deployment: Deployment, previous: asyncio.Task[None] | None) -> None:
        await cancel(previous)
        folder = DeploymentFolder(self._workspace, deployment)
        try:
            source, instances = await self._start(deployment, folder)
        except _Failed as failure:
            code, message = failure.args
            logger.warning("deployment %s/%s: %s", deployment.endpoint, deployment.name, message)
            await self._finish(deployment, (code, message))
            return
        except Exception:  # log it; the deployment fails with Azure's code for internal errors
            logger.exception("deployment %s/%s", deployment.endpoint, deployment.name)
            await self._finish(deployment, ("InternalServerError", "a defect of localazure"))
            return
        outdated = self._serving.get(deployment.key, [])
        self._serving[deployment.key] = instances
        await self._finish(deployment, None)
        for instance in outdated:
            await instance.end()
        await asyncio.to_thread(folder.remove_other_generations)
        await asyncio.gather(
            *(self._keep_running(deployment, folder, source, n) for n in range(len(instances)))
        )

    async def _finish(self, deployment: Deployment, error: tuple[str, str] | None) -> None:
        """Enqueue the event, then store the result: a crash in between repeats the event."""
        now = self._workspace.clock()
        current = get_deployment(self._database.read, deployment.endpoint, deployment.name)
        is_new = deployment.state is not DeploymentState.SUCCEEDED
        is_current = current is not None and current.generation == deployment.generation
        if error is None and is_new and is_current:
            model = deployment.properties.get("model")
            asset = None if model is None else parse_asset(model, kind="models")
            models = [] if asset is None else [f"{asset.name}:{asset.version}"]
            event = model_deployed(
                self._workspace.id, deployment.endpoint, models, deployment.document, now
            )
            await self._workspace.write(lambda connection: enqueue(connection, event))
        await self._database.write(
            lambda connection: finish_provisioning(connection, deployment, error=error, now=now)
        )

    async def _start(
        self, deployment: Deployment, folder: DeploymentFolder
    ) -> tuple[Source, list[Instance]]:
        """Download the files and start all processes; return when all are ready.

        Raises:
            _Failed: the deployment cannot be provisioned.
        """
        if deployment.state is not DeploymentState.SUCCEEDED:
            await asyncio.sleep(self._workspace.configuration.provisioning_seconds)
            size = deployment.instance_type
            if self._workspace.faults.next(f"deployment/{size}", OF_ALLOCATIONS) is not None:
                raise _Failed(
                    "OutOfCapacity",
                    f"The specified VM size {size} failed to provision due to a lack of Azure "
                    "Machine Learning capacity. Retry later. (A fault on purpose.)",
                )
        try:
            source = resolve_source(
                self._workspace.database.read, deployment.name, deployment.properties
            )
        except ArmError as error:
            raise _Failed("BadArgument", error.message) from error
        await self._download(folder, source)
        instances: list[Instance] = []
        try:
            async with asyncio.timeout(READY_SECONDS):
                for _ in range(deployment.instance_count):
                    instance = await self._start_instance(deployment, folder, source)
                    instances.append(instance)
                for instance in instances:
                    await instance.wait_until_ready(self._session)
        except BaseException as error:
            for instance in instances:
                await asyncio.shield(instance.end())
            match error:
                case TimeoutError():
                    message = (
                        f"the container was not ready within {READY_SECONDS:.0f} s: init() of the "
                        "scoring script takes too long"
                    )
                case InstanceEndedError():
                    message = (
                        f"User container has crashed or terminated ({error}): init() of the "
                        "scoring script failed. Please see troubleshooting guide, available here: "
                        "https://aka.ms/oe-tsg#error-resourcenotready\n"
                        + folder.tail(SERVER_LOG, LOG_LINES_IN_ERROR)
                    )
                case _:
                    raise
            raise _Failed("ResourceNotReady", message) from error
        return source, instances

    async def _download(self, folder: DeploymentFolder, source: Source) -> None:
        is_waiting = False
        while True:
            try:
                await asyncio.to_thread(folder.download, source)
            except (SourceNotFoundError, StorageError) as error:
                if not (isinstance(error, StorageError) and error.is_transient):
                    raise _Failed("BadArgument", f"code or model: {error}") from error
                if not is_waiting:
                    logger.warning("%s: code and model wait for storage: %s", folder.root, error)
                is_waiting = True
                await asyncio.sleep(STORAGE_RETRY_SECONDS)
            else:
                break
        # The scoring script has an absolute path if it is one of localazure's.
        if not (folder.code / source.scoring_script).is_file():
            raise _Failed(
                "BadArgument", f"the code has no scoring script {source.scoring_script!r}"
            )

    async def _keep_running(
        self, deployment: Deployment, folder: DeploymentFolder, source: Source, number: int
    ) -> None:
        """Restart a process whenever it ends."""
        failures = 0
        while True:
            await self._serving[deployment.key][number].process.wait()
            pause = RESTART_PAUSES_SECONDS[min(failures, len(RESTART_PAUSES_SECONDS) - 1)]
            logger.warning("deployment %s/%s: a process ended and is restarted", *deployment.key)
            await asyncio.sleep(pause)
            try:
                instance = await self._start_instance(deployment, folder, source)
                self._serving[deployment.key][number] = instance
                await instance.wait_until_ready(self._session)
                failures = 0
            except (InstanceEndedError, OSError) as error:  # OSError: for example a full disk
                logger.warning("deployment %s/%s: %s", *deployment.key, error)
                failures += 1

    async def _end_serving(self, key: tuple[str, str]) -> None:
        for instance in self._serving.pop(key, []):
            with contextlib.suppress(ProcessLookupError):
                await instance.end()


def resolve_source(query: Query, name: str, properties: dict[str, Any]) -> Source:
    """Resolve the locations of an online or batch deployment's code and model.

    Raises:
        ArmError: a field is missing, a reference does not exist, or the model is not covered.
    """
    code, model = properties.get("codeConfiguration") or {}, properties.get("model")
    asset = None if model is None else parse_asset(model, kind="models")
    files = None if asset is None else locate(query, asset)
    if code.get("codeId") and code.get("scoringScript"):
        code_files = locate(query, parse_asset(code["codeId"], kind="codes"))
        return Source(code=code_files, scoring_script=code["scoringScript"], model=files)
    resource = None if asset is None else get_resource(query, asset.kind, asset.name, asset.version)
    if resource is None or resource.properties.get("modelType") != MLFLOW_MODEL:
        raise invalid(
            f"deployment {name!r} has no code_configuration: only a model of type "
            "mlflow_model is served without one"
        )
    return Source(code=None, scoring_script=str(MLFLOW_SCRIPT), model=files)
