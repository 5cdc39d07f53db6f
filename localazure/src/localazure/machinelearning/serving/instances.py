"""The processes of a deployment: folder, command line, environment, start and end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from asyncio.subprocess import STDOUT, Process
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.client_settings import app_settings
from localazure.machinelearning.data.blobs import BlobStore
from localazure.machinelearning.data.cache import BlobCache
from localazure.machinelearning.jobs.processes import inherited_environment, path_of
from localazure.machinelearning.serving import scoring_server
from localazure.machinelearning.serving.data_collector import DataCollector
from localazure.machinelearning.serving.store import Deployment
from localazure.machinelearning.workspace import Workspace
from localazure.processes.lifetime import die_with_parent, end
from localazure.processes.ports import LOOPBACK, free_ports
from localazure.processes.state_folder import users_umask

PROBE_SECONDS = 0.05
END_SECONDS = 3.0
SERVER_LOG = "inference-server.txt"
STORAGE_LOG = "storage-initializer.txt"


class InstanceEndedError(RuntimeError):
    """The process ended before it was ready."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """The locations of a deployment's files."""

    code: BlobPath | None
    """None if the scoring script is one of localazure's."""
    scoring_script: str
    """Relative to the code folder; absolute if it is one of localazure's."""
    model: BlobPath | None


class DeploymentFolder:
    """The files of one deployment on this machine."""

    def __init__(self, workspace: Workspace, deployment: Deployment) -> None:
        self._workspace = workspace
        machine_learning = workspace.environment.part_folder("machinelearning").resolve()
        self._cache = machine_learning / "cache"
        self.root = machine_learning / "online" / deployment.endpoint / deployment.name
        self._generation = self.root / str(deployment.generation)
        self.code = self._generation / "code"
        """The code folder; also the working directory."""
        self.model = self._generation / "model"
        """AZUREML_MODEL_DIR: it contains the model's folder or file, under its own name."""
        self.collector_config = self._generation / "data-collector.json"
        """The configuration of `azureml-ai-monitoring`."""
        self.root.mkdir(parents=True, exist_ok=True)

    def download(self, source: Source) -> None:
        """Download code and model to empty folders.

        Raises:
            SourceNotFoundError: the code or the model has no blobs.
            StorageError: storage is unavailable.
        """
        shutil.rmtree(self._generation, ignore_errors=True)
        with (
            contextlib.closing(BlobStore(self._workspace.environment)) as store,
            (self.root / STORAGE_LOG).open("a") as log,
        ):
            cache = BlobCache(self._cache, store)
            if source.code is None:
                self.code.mkdir(parents=True)
            else:
                count = cache.materialize(source.code, self.code, is_mount=False)
                log.write(f"code: {count} files\n")
            self.model.mkdir(parents=True)
            if source.model is not None:
                files = list(store.list(source.model))
                is_file = len(files) == 1 and files[0].name == source.model.path
                name = Path(source.model.path).name
                target = self.model if is_file or not name else self.model / name
                count = cache.materialize(source.model, target, is_mount=True)
                log.write(f"model: {count} files\n")

    def remove_other_generations(self) -> None:
        """Delete the files of the deployment's earlier generations."""
        for folder in self.root.iterdir():
            if folder.is_dir() and folder != self._generation:
                shutil.rmtree(folder, ignore_errors=True)

    def tail(self, name: str, lines: int) -> str:
        """The last lines of a log; empty if the log does not exist."""
        try:
            text = (self.root / name).read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "".join(text.splitlines(keepends=True)[-lines:]) if lines else ""


@dataclass
class Instance:
    """One process that serves a deployment."""

    process: Process
    port: int
    requests: int = 0
    """The number of requests in progress."""

    @property
    def url(self) -> str:
        """Base URL, without a trailing slash."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return self.process.returncode is None

    async def wait_until_ready(self, session: aiohttp.ClientSession) -> None:
        """Wait until the process responds to a probe.

        Raises:
            InstanceEndedError: the process has ended.
        """
        while self.is_alive:
            try:
                async with session.get(f"{self.url}/") as response:
                    if response.ok:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(PROBE_SECONDS)
        raise InstanceEndedError(f"exit code {self.process.returncode}")

    async def end(self) -> None:
        """End the process, and wait until it has ended."""
        await end(self.process, within_seconds=END_SECONDS)


async def start_instance(
    workspace: Workspace,
    collector: DataCollector,
    deployment: Deployment,
    folder: DeploymentFolder,
    source: Source,
) -> Instance:
    """Start one process, without waiting until it is ready."""
    (port,) = free_ports(1)
    script = folder.code / source.scoring_script
    variables: dict[str, Any] = deployment.properties.get("environmentVariables") or {}
    environment = {
        **inherited_environment(os.environ),
        "PATH": f"{Path(sys.executable).parent}:{path_of(os.environ)}",
        "OMP_NUM_THREADS": "1",
        **app_settings(workspace.environment),
        **{name: str(value) for name, value in variables.items()},
        **await collector.environment_of(deployment, folder.collector_config),
        "AZUREML_MODEL_DIR": str(folder.model),
        "AZUREML_ENTRY_SCRIPT": source.scoring_script,
        "AML_APP_ROOT": str(folder.code),
    }
    with (folder.root / SERVER_LOG).open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            # -P keeps the server's own folder off the script's sys.path.
            "-P",
            scoring_server.__file__,
            "--entry_script",
            str(script),
            "--port",
            str(port),
            cwd=folder.code if source.code is None else script.parent,
            env=environment,
            stdout=log,
            stderr=STDOUT,
            umask=users_umask(),
            preexec_fn=die_with_parent(),
        )
    return Instance(process, port)
