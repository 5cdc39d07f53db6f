"""A running workspace with its storage, both as processes, and a real MLClient for it."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import pytest
import requests
from azure.ai.ml import MLClient
from azure.identity import DefaultAzureCredential
from azure.storage.blob import BlobServiceClient
from requests.adapters import HTTPAdapter

from harness.local_workspace import AZURE_ML, EventGridTopic, Local
from harness.part_process import PartProcess
from harness.published_api import SPECIFICATIONS_VARIABLE, Exchange, PublishedApi, recorded
from harness.role_table import TABLE, Grant, RoleTable
from localazure.machinelearning.client_settings import app_settings
from localazure.runtime.certificates import ensure_certificates
from localazure.runtime.environment import Environment
from localazure.runtime.identity import APP, client_id_of


@contextmanager
def azure_ml_settings(environment: Environment) -> Generator[None]:
    """Set the app settings with which the SDK finds the workspace, in this process."""
    # The SDK loads its CA file for most requests: certifi's file takes 25 ms each time.
    settings = {**app_settings(environment), "REQUESTS_CA_BUNDLE": str(environment.ca)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        patch.setenv("AZURE_CLIENT_ID", client_id_of(APP))
        patch.setenv("AZUREML_RUN_POLLING_INTERVAL_MIN", "1")
        yield


@pytest.fixture(scope="session")
def exchanges() -> Iterator[list[Exchange]]:
    """The requests to the workspace with their responses, if they can be checked."""
    recording: list[Exchange] = []
    with recorded(recording) if SPECIFICATIONS_VARIABLE in os.environ else nullcontext():
        yield recording


@pytest.fixture(scope="session")
def published_api() -> PublishedApi:
    return PublishedApi(Path(os.environ.get(SPECIFICATIONS_VARIABLE, "")))


@pytest.fixture(autouse=True)
def follows_the_published_api(
    exchanges: list[Exchange], published_api: PublishedApi
) -> Iterator[None]:
    """Fail a test whose requests or responses differ from Microsoft's specifications."""
    yield
    found = {each for exchange in exchanges for each in published_api.deviations(exchange)}
    exchanges.clear()
    assert not found, "\n".join(sorted(found))


@pytest.fixture(scope="module")
def local(running_local: Local) -> Iterator[Local]:
    # Module scope: later tests in other folders must not trust the local certificates.
    with azure_ml_settings(running_local.environment):
        yield running_local


@pytest.fixture(scope="session")
def running_local(
    tmp_path_factory: pytest.TempPathFactory,
    exchanges: list[Exchange],  # noqa: ARG001 - the client is made while it records
) -> Iterator[Local]:
    state = tmp_path_factory.mktemp("state")
    (state / "azure-ml.json").write_text(json.dumps(AZURE_ML))
    (state / "storage.json").write_text(json.dumps({"containers": ["landing"]}))
    environment = Environment.draw(state, app=state, config=state)
    environment.save()
    ensure_certificates(environment)
    with ExitStack() as stack:
        with azure_ml_settings(environment):
            storage = stack.enter_context(PartProcess("storage", state))
            workspace = stack.enter_context(PartProcess("machinelearning", state))
            connection = environment.storage_connection_string()
            blobs = stack.enter_context(BlobServiceClient.from_connection_string(connection))
            topic = stack.enter_context(EventGridTopic(environment.ports.event_grid).open())
            # Created after the workspace has started: it requests the cloud's metadata.
            ml = MLClient(
                DefaultAzureCredential(),
                environment.subscription_id,
                environment.resource_group,
                environment.workspace,
            )
            http = stack.enter_context(requests.Session())
            # Retries reopen a connection that the workspace closed when it restarted.
            http.mount("https://", HTTPAdapter(max_retries=3))
        yield Local(environment, ml, blobs, workspace, storage, topic, http)


@pytest.fixture
def grant(local: Local) -> Iterator[Grant]:
    """Return a function that gives the app exactly these roles on the workspace."""
    table = RoleTable(local.environment.app)
    more = {"principal": "app", "roleId": "i", "scope": "workspace", "when": "always"}

    def write(*roles: str) -> None:
        rows = [{**more, "role": role, "reason": "because"} for role in roles]
        table.assign([*rows, *(row for row in TABLE["assignments"] if row["role"] in roles)])

    yield write
    table.remove()
