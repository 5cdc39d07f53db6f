"""The app's clients on a local workspace and the shared storage, both running as processes."""

from __future__ import annotations

import json
import warnings
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from handlers.platform.clients import Clients
from handlers.platform.settings import Settings
from harness.part_process import PartProcess
from localazure.machinelearning.client_settings import CLOUD_NAME, app_settings
from localazure.runtime.certificates import ensure_certificates
from localazure.runtime.environment import Environment

with warnings.catch_warnings():
    # azure.ai.ml defines schemas in ways that marshmallow announces the end of.
    warnings.simplefilter("ignore")
    from azure.ai.ml import _azure_environments as clouds

IDENTITY = (
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity"
    "/userAssignedIdentities/cluster"
)
PRODUCTION = "production"
"""A further workspace, and its account."""
LIMITED_SIZE = "Standard_NC6s_v3"
AZURE_ML = {
    "datastores": [
        {"name": "landing", "containerName": "landing"},
        {"name": "landfall", "containerName": "landfall"},
    ],
    "provisioningSeconds": 0.1,
    "quota": {LIMITED_SIZE: 3},
    "totalLowPriorityCores": 24,
    "otherWorkspaces": [
        {"name": PRODUCTION, "resourceGroup": "production", "storageAccount": PRODUCTION}
    ],
}


@dataclass(frozen=True)
class Cloud:
    """The app's clients, and the folder that it reads its pipelines from."""

    clients: Clients
    pipelines: Path
    environment: Environment


@contextmanager
def azure_ml_settings(environment: Environment) -> Generator[None]:
    """Set the app settings with which the SDKs find the workspace, in this process."""
    # The SDK loads its CA file for most requests: certifi's file takes 25 ms each time.
    settings = {**app_settings(environment), "REQUESTS_CA_BUNDLE": str(environment.ca)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def cloud(running_cloud: Cloud) -> Iterator[Cloud]:
    # For this module only: a later test of another folder must not trust the local certificates.
    with (
        azure_ml_settings(running_cloud.environment),
        pytest.MonkeyPatch.context() as patch,
    ):
        # As `handlers.platform.azure_ml` does: else the SDK reads the endpoints for each job.
        sdk: Any = clouds
        patch.setitem(sdk._environments, CLOUD_NAME, sdk._get_cloud(CLOUD_NAME))
        yield running_cloud


@pytest.fixture(scope="package")
def running_cloud(
    storage_part: Environment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cloud]:
    environment, state = storage_part, storage_part.state
    pipelines = tmp_path_factory.mktemp("pipelines")
    (state / "azure-ml.json").write_text(json.dumps(AZURE_ML))
    ensure_certificates(environment)
    clients = Clients(
        Settings(
            {
                "DataStorage": environment.storage_connection_string(),
                "WorkspaceStorage": environment.storage_connection_string(),
                "AZUREML_SUBSCRIPTION_ID": environment.subscription_id,
                "AZUREML_RESOURCE_GROUP": environment.resource_group,
                "AZUREML_WORKSPACE_NAME": environment.workspace,
                "ProductionStorage": environment.storage_connection_string(PRODUCTION),
                "CLUSTER_IDENTITY": IDENTITY,
                "RESOURCE_MANAGER_ENDPOINT": environment.azure_ml_url,
                "PIPELINES_FOLDER": str(pipelines),
            }
        )
    )
    with ExitStack() as stack:
        with azure_ml_settings(environment):
            stack.enter_context(PartProcess("machinelearning", state))
            for client in (clients.blobs, clients.workspace_blobs):
                stack.enter_context(client)
        yield Cloud(clients, pipelines, environment)
