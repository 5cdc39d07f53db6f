"""MLflow's own server on the runs of the workspace's jobs, if `azure-ml.json` has a port for it.

It needs the package mlflow, 250 MB of memory in each of two processes, and up to 30 s to start, so
it is not started by default: jobs log to files without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import os
import subprocess
import sys
from collections.abc import AsyncGenerator

from localazure.errors import ConfigurationError
from localazure.machinelearning.events import DEFAULT_EXPERIMENT
from localazure.machinelearning.jobs.processes import FOLDER_VARIABLE, tracking_store
from localazure.machinelearning.jobs.rank_group import kill_marked
from localazure.machinelearning.jobs.tracking import ALLOW_FILES, ensure_experiment
from localazure.machinelearning.workspace import Workspace
from localazure.processes.background import doing
from localazure.processes.ports import LOOPBACK

LOG = "mlflow-server.log"


@contextlib.asynccontextmanager
async def tracking_server(workspace: Workspace) -> AsyncGenerator[None]:
    """Keep the server running, if the workspace is to have one. It may be ready only later.

    Raises:
        ConfigurationError: the package mlflow is not installed.
    """
    port = workspace.configuration.mlflow_server_port
    if port is None:
        yield
        return
    try:
        importlib.metadata.version("mlflow")
    except importlib.metadata.PackageNotFoundError:
        file = workspace.environment.azure_ml_config
        raise ConfigurationError(
            f"{file}: mlflowServerPort: {sys.executable} has no MLflow server; install it with "
            f"`{sys.executable} -m pip install mlflow`, or remove the key"
        ) from None
    store = tracking_store(workspace.environment)
    ensure_experiment(store, DEFAULT_EXPERIMENT, now=workspace.clock())
    # Its workers are not children of this process: those of a process that was killed still listen.
    await asyncio.to_thread(kill_marked, store)
    try:
        async with doing("running MLflow's server", lambda: _run(workspace, port)):
            yield
    finally:
        await asyncio.to_thread(kill_marked, store)


async def _run(workspace: Workspace, port: int) -> None:
    """Run the server until it ends by itself.

    Raises:
        RuntimeError: it has ended.
    """
    store = tracking_store(workspace.environment)
    log_file = workspace.environment.part_folder("machinelearning") / LOG
    with log_file.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mlflow", "server", "--workers", "1"),
            *("--host", LOOPBACK, "--port", str(port), "--backend-store-uri", store.as_uri()),
            # Clients on this machine read and write artifacts where the jobs do.
            *("--no-serve-artifacts", "--default-artifact-root", store.as_uri()),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                **ALLOW_FILES,
                "MLFLOW_DISABLE_TELEMETRY": "true",
                FOLDER_VARIABLE: str(store),
            },
        )
    code = await process.wait()
    raise RuntimeError(f"it ended with exit code {code}; its log is {log_file}")
