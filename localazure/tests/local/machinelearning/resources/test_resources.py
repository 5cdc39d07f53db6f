from __future__ import annotations

import json
import ssl
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import requests
from azure.ai.ml import MLClient
from azure.ai.ml.entities import BuildContext, Data, Environment, Model
from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.identity import DefaultAzureCredential

from harness.local_workspace import Local
from harness.waiting import until
from localazure.machinelearning.addresses import workspace_id
from localazure.runtime.environment import STORAGE_ACCOUNT


def details(local: Local, name: str) -> dict[str, Any]:
    """A cluster's run-time properties from GET; the SDK's entity does not have the nodes."""
    response = local.ask("GET", local.ml.compute.get(name).id)
    return response.json()["properties"]["properties"]


def test_the_workspace_is_found_and_no_other(local: Local) -> None:
    found = local.ml.workspaces.get(local.environment.workspace)
    assert "set-mlflowServerPort-in-azure-ml.json" in found.mlflow_tracking_uri
    assert found.name == local.environment.workspace
    environment = local.environment
    where = (environment.subscription_id, environment.resource_group, "nowhere")
    other = MLClient(DefaultAzureCredential(), *where)
    with pytest.raises(ResourceNotFoundError, match="'nowhere' was not found"):
        other.compute.get("cpu")


def test_requests_need_a_token(local: Local) -> None:
    url = f"{local.environment.azure_ml_url}/subscriptions/x"
    for headers in ({}, {"Authorization": "Bearer a.b.c"}, {"Authorization": "Basic eDp5"}):
        response = requests.get(url, headers=headers, timeout=10)
        assert response.status_code == 401
        assert response.json()["error"]["code"] == "AuthenticationFailed"
        assert response.headers["WWW-Authenticate"] == "Bearer"


def test_a_token_needs_the_identity_header(local: Local) -> None:
    url = f"http://127.0.0.1:{local.environment.ports.identity}/msi/token?resource=https://x"
    response = requests.get(url, headers={"X-IDENTITY-HEADER": "guessed"}, timeout=10)
    assert response.status_code == 401


def test_python_itself_trusts_the_certificate(local: Local) -> None:
    url = f"{local.environment.azure_ml_url}/metadata/endpoints?api-version=2019-05-01"
    # Pass a new context: urllib caches the context of the process's first request.
    context = ssl.create_default_context()
    with urllib.request.urlopen(url, timeout=10, context=context) as answer:
        assert json.loads(answer.read())[0]["name"] == "LocalCloud"


def test_datastores(local: Local) -> None:
    default = local.ml.datastores.get_default()
    assert (default.name, default.container_name) == ("workspaceblobstore", "azureml-blobstore")
    names = {entry.name for entry in local.ml.datastores.list()}
    assert names >= {"workspaceblobstore", "workspaceartifactstore", "landing"}
    landing = local.ml.datastores.get("landing", include_secrets=True)
    assert landing.account_name == STORAGE_ACCOUNT
    # The SDK requests a secret that expires, which is a SAS.
    assert "sig=" in landing.credentials.sas_token
    landing.name, landing.container_name = "second", "second"
    local.ml.datastores.create_or_update(landing)
    assert local.ml.datastores.get("second").container_name == "second"
    local.ml.datastores.delete("second")
    with pytest.raises(ResourceNotFoundError):
        local.ml.datastores.get("second")
    with pytest.raises(HttpResponseError, match="belongs to the workspace"):
        local.ml.datastores.delete("landing")


def test_a_data_version_never_changes(local: Local) -> None:
    def put(version: str | None, path: str, **fields: Any) -> Data:
        uri = f"azureml://datastores/landing/paths/{path}"
        data = Data(name="crops", version=version, type="uri_folder", path=uri, **fields)
        return local.ml.data.create_or_update(data)

    assert put("3", "a/", tags={"rows": "1"}).version == "3"
    assert put("3", "a/", tags={"rows": "2"}).tags == {"rows": "2"}
    with pytest.raises(ResourceExistsError, match="dataUri cannot change"):
        put("3", "b/")
    assert put(None, "b/").version == "4"
    latest = local.ml.data.get("crops", label="latest")
    assert (latest.version, latest.path.endswith("/paths/b/")) == ("4", True)
    assert [entry.version for entry in local.ml.data.list(name="crops")] == ["4", "3"]
    local.ml.data.archive(name="crops", version="3")
    assert [entry.version for entry in local.ml.data.list(name="crops")] == ["4"]
    assert local.ml.data.get("crops", version="3").tags == {"rows": "2"}


def test_models_are_versioned_and_announced(local: Local) -> None:
    for version in ("7", "8"):
        model = Model(
            name="digits",
            version=version,
            type="custom_model",
            path="azureml://datastores/workspaceblobstore/paths/azureml/run/results/model",
            tags={"loss": "0.1"},
            properties={"run": "run-1"},
        )
        assert local.ml.models.create_or_update(model).version == version
    assert local.ml.models.get("digits", label="latest").version == "8"
    assert local.ml.models.get("digits", version="7").properties["run"] == "run-1"
    assert [entry.version for entry in local.ml.models.list(name="digits")] == ["8", "7"]
    with pytest.raises(ResourceNotFoundError):
        local.ml.models.get("digits", version="9")

    def registered() -> list[dict[str, Any]]:
        kind = "Microsoft.MachineLearningServices.ModelRegistered"
        return [entry for entry in local.topic.events if entry["eventType"] == kind]

    until(lambda: len([e for e in registered() if e["data"]["ModelName"] == "digits"]) == 2)
    event = next(entry for entry in registered() if entry["subject"] == "models/digits:8")
    assert event["data"]["ModelTags"] == {"loss": "0.1"}


def test_environments(local: Local, tmp_path: Path) -> None:
    environment = Environment(name="torch", version="1", image="example/torch:2")
    made = local.ml.environments.create_or_update(environment)
    assert made.id.endswith("/environments/torch/versions/1")
    assert local.ml.environments.get("torch", label="latest").image == "example/torch:2"
    environment.image = "example/torch:3"
    with pytest.raises(ResourceExistsError, match="image cannot change"):
        local.ml.environments.create_or_update(environment)
    (tmp_path / "Dockerfile").write_text("FROM python\n")
    context = Environment(name="built", version="1", build=BuildContext(path=str(tmp_path)))
    made = local.ml.environments.create_or_update(context)
    assert "/azureml-blobstore/LocalUpload/" in made.build.path, "it was uploaded"


def test_a_cluster_grows_for_a_job_and_shrinks_to_nothing(local: Local) -> None:
    local.make_cluster("elastic", max_instances=1, idle_time_before_scale_down=1)
    assert details(local, "elastic")["currentNodeCount"] == 0
    local.submit("waits", "sleep 600", compute="elastic", instance_count=2)
    assert local.status("waits") == "Queued", "the cluster may have one node only"
    grown = local.ml.compute.get("elastic")
    assert (grown.size, grown.max_instances) == ("Standard_D2", 1)
    grown.max_instances = 2
    local.ml.compute.begin_update(grown).result()
    local.wait_for("waits", "Running")
    counts = details(local, "elastic")
    assert counts["nodeStateCounts"]["runningNodeCount"] == 2
    assert counts["allocationState"] == "Steady"
    nodes = [vars(node) for node in local.ml.compute.list_nodes("elastic")]
    assert [node["runId"] for node in nodes] == ["waits", "waits"]
    local.cancel("waits")
    until(lambda: details(local, "elastic")["currentNodeCount"] == 0)
    local.ml.compute.begin_delete("elastic").result()
    with pytest.raises(ResourceNotFoundError):
        local.ml.compute.get("elastic")


def test_jobs_of_a_deleted_cluster_fail(local: Local) -> None:
    local.make_cluster("short-lived", max_instances=1)
    for name in ("runs", "queued"):
        local.submit(name, "sleep 600", compute="short-lived")
    local.wait_for("runs", "Running")
    local.ml.compute.begin_delete("short-lived").result()
    local.wait_for("runs", "Failed")
    local.wait_for("queued", "Failed")


def test_a_cluster_stops_growing_at_the_quota(local: Local) -> None:
    local.make_cluster("scarce", size="Standard_NC24scarce")
    local.submit("hungry", "true", compute="scarce", instance_count=2)
    until(lambda: details(local, "scarce")["errors"])
    assert details(local, "scarce")["errors"][0]["error"]["code"] == "ClusterCoreQuotaReached"
    assert local.status("hungry") == "Queued"
    # vars: the SDK's entities keep some fields under their wire names.
    usages = {each.name["value"]: vars(each) for each in local.ml.compute.list_usage()}
    scarce_usage = usages["standard_nc24scarce"]
    assert (scarce_usage["currentValue"], scarce_usage["limit"]) == (0, 24)
    assert usages["TotalLowPriorityCores"]["limit"] == 96
    sizes = {each.name: vars(each) for each in local.ml.compute.list_sizes()}
    assert sizes["Standard_NC24scarce"]["vCPUs"] == 24
    assert sizes["Standard_NC24scarce"]["family"] == "standard_nc24scarce"
    assert sizes["standard_none"]["vCPUs"] == 1
    local.ml.jobs.begin_cancel("hungry").result()
    assert local.status("hungry") == "Canceled"
    for name, size, minimum, tier in (
        ("more", "Standard_NC24scarce", 2, "dedicated"),
        ("none", "Standard_None", 0, "dedicated"),
        ("much", "Standard_ND96", 2, "low_priority"),
    ):
        with pytest.raises(HttpResponseError, match="ask for more quota"):
            local.make_cluster(name, size=size, min_instances=minimum, tier=tier)


def test_operations_that_are_not_covered_are_refused(local: Local) -> None:
    workspace = workspace_id(local.environment)
    response = local.ask("GET", f"{workspace}/marketplaceSubscriptions")
    assert response.status_code == 501
    message = response.json()["error"]["message"]
    assert f"does not have the operation GET {workspace}/marketplaceSubscriptions" in message
