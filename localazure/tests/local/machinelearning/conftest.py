"""A running workspace with its storage, both as processes, and a real MLClient for it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator

import pytest

from harness.local_workspace import (
    AZURE_ML,
    EventGridTopic,
    Local,
)
from harness.part_process import PartProcess
from localazure.machinelearning.client_settings import app_settings
from localazure.runtime.certificates import ensure_certificates
from localazure.runtime.environment import Environment

with warnings.catch_warnings():
    # The SDK defines schemas in ways that marshmallow deprecates.
    warnings.simplefilter("ignore")
    from azure.ai.ml import MLClient
    from azure.identity import DefaultAzureCredential
    from azure.storage.blob import BlobServiceClient


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    state = tmp_path_factory.mktemp("state")
    (state / "azure-ml.json").write_text(json.dumps(AZURE_ML))
    (state / "storage.json").write_text(json.dumps({"containers": ["landing"]}))
    environment = Environment.draw(state, app=state, config=state)
    environment.save()
    ensure_certificates(environment)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in app_settings(environment).items():
            patch.setenv(name, value)
        patch.setenv("AZUREML_RUN_POLLING_INTERVAL_MIN", "1")
        blobs = BlobServiceClient.from_connection_string(environment.storage_connection_string())
        with (
            PartProcess("storage", state) as storage,
            PartProcess("machinelearning", state) as workspace,
            blobs,
            EventGridTopic(environment.ports.event_grid).open() as topic,
        ):
            # Created here, since its constructor requests the cloud's metadata.
            ml = MLClient(
                DefaultAzureCredential(),
                environment.subscription_id,
                environment.resource_group,
                environment.workspace,
            )
            yield Local(environment, ml, blobs, workspace, storage, topic)
