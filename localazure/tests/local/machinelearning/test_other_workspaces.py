"""A second workspace at the same endpoint, with the unmodified SDK."""

from __future__ import annotations

from typing import Any

import pytest
from azure.ai.ml import MLClient
from azure.ai.ml.entities import Model
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.identity import DefaultAzureCredential

from harness.local_workspace import Local
from harness.role_table import Grant


def client_of(local: Local, group: str, workspace: str) -> Any:
    subscription = local.environment.subscription_id
    return MLClient(DefaultAzureCredential(), subscription, group, workspace)


@pytest.fixture
def other(local: Local) -> Any:
    return client_of(local, "elsewhere", "other")


def register(client: Any, path: str) -> str:
    uri = f"azureml://datastores/workspaceblobstore/paths/{path}/"
    model = Model(name="of-two", version="1", path=uri, type="custom_model")
    return str(client.models.create_or_update(model).path)


def test_each_has_versions_of_its_own(local: Local, other: Any) -> None:
    here, there = register(local.ml, "here"), register(other, "there")
    assert "/workspaces/local/" in here
    assert "/workspaces/other/" in there
    assert local.ml.models.get("of-two", "1").path == here
    assert other.models.get("of-two", "1").path == there
    assert other.models.get("of-two", "1").id.endswith("/workspaces/Other/models/of-two/versions/1")
    assert other.datastores.get_default().name == "workspaceblobstore"


def test_it_has_no_compute_and_is_in_its_group_alone(local: Local, other: Any) -> None:
    with pytest.raises(HttpResponseError, match="does not have the operation GET"):
        other.compute.get("cpu")
    with pytest.raises(ResourceNotFoundError, match="resource group 'local' was not found"):
        client_of(local, "local", "other").models.get("of-two", "1")


def test_a_role_on_the_first_allows_nothing_in_it(local: Local, other: Any, grant: Grant) -> None:
    grant("AzureML Data Scientist")
    register(local.ml, "here")
    with pytest.raises(HttpResponseError, match=r"over scope '.*/workspaces/Other'"):
        register(other, "there")
