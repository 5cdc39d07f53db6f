"""A running workspace with its storage, both as processes, and a real MLClient for it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator

import pytest

from localazure.certificates import ensure_certificates
from localazure.environment import Environment, Keys
from localazure.machinelearning.client_settings import app_settings
from tests.local.machinelearning.local_workspace import (
    AZURE_ML,
    EventGridTopic,
    Local,
    Part,
    free_ports,
)

with warnings.catch_warnings():
    # The SDK defines schemas in ways that marshmallow announces the end of.
    warnings.simplefilter("ignore")
    from azure.ai.ml import MLClient
    from azure.identity import DefaultAzureCredential
    from azure.storage.blob import BlobServiceClient


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    state = tmp_path_factory.mktemp("state")
    config = state / "azure-ml.json"
    config.write_text(json.dumps(AZURE_ML))
    storage_config = state / "storage.json"
    storage_config.write_text(json.dumps({"containers": ["landing"]}))
    environment = Environment(
        state=state,
        app=state,
        ports=free_ports(),
        keys=Keys.draw(),
        service_bus_config=state / "none",
        event_grid_config=state / "none",
        azure_ml_config=config,
        storage_config=storage_config,
        app_settings={},
    )
    environment.save()
    ensure_certificates(environment)
    storage, workspace = Part("storage", state), Part("machinelearning", state)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in app_settings(environment).items():
            patch.setenv(name, value)
        patch.setenv("AZUREML_RUN_POLLING_INTERVAL_MIN", "1")
        storage.start()
        workspace.start()
        try:
            ml = MLClient(
                DefaultAzureCredential(),
                environment.subscription_id,
                environment.resource_group,
                environment.workspace,
            )
            blobs = BlobServiceClient.from_connection_string(
                environment.storage_connection_string()
            )
            topic = EventGridTopic(environment.ports.event_grid)
            with blobs, topic.open():
                yield Local(environment, ml, blobs, workspace, storage, topic)
        finally:
            workspace.end()
            storage.end()
