from __future__ import annotations

import time
from pathlib import Path

import pytest
import requests

from harness.local_workspace import Local, local_workspace
from localazure import limits
from localazure.machinelearning.addresses import workspace_id


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/history/v1.0{workspace}/rundata"),
        ("POST", "/data/v1.0{workspace}/dataversion/batchGetResolvedUris"),
        ("PUT", "{workspace}/jobs/deep"),
        ("PUT", "{workspace}/models/m/versions/1"),
        ("POST", "{workspace}/datastores/workspaceblobstore/listSecrets"),
    ],
)
@pytest.mark.parametrize("body", ["[" * 100_000, '{"properties": [}', "[]"])
def test_a_body_that_is_no_json_object_is_refused(
    local: Local, method: str, path: str, body: str
) -> None:
    environment = local.environment
    url = environment.azure_ml_url + path.format(workspace=workspace_id(environment))
    headers = {
        "Authorization": f"Bearer {local.token}",
        "Content-Type": "application/json; charset=klingon,charset=utf-8",
    }
    response = requests.request(method, url, data=body, headers=headers, timeout=30)
    assert response.status_code == 400, response.text
    assert "the request body" in response.json()["error"]["message"]


def test_a_new_workspace_has_the_containers_of_its_datastores(tmp_path: Path) -> None:
    with local_workspace(tmp_path) as new:
        names = {container.name for container in new.blobs.list_containers()}
    assert {"azureml", "azureml-blobstore"} <= names


def test_the_sdk_waits_as_long_as_it_is_asked_to(local: Local) -> None:
    environment = local.environment
    url = environment.azure_ml_url + workspace_id(environment)
    with requests.Session() as session:  # `Local.http` would retry
        session.headers["Authorization"] = f"Bearer {local.token}"
        deadline = time.monotonic() + 60
        while (response := session.get(url)).status_code != 429:
            assert time.monotonic() < deadline
    assert response.headers["Retry-After"] == "1"
    assert response.headers["x-ms-ratelimit-remaining-subscription-reads"] == "0"
    assert response.json()["error"]["code"] == "SubscriptionRequestsThrottled"
    # The SDK's retries must get through a burst over the limit.
    for _ in range(2 * limits.ARM_READS.value):
        assert local.ml.workspaces.get(environment.workspace).name == environment.workspace
