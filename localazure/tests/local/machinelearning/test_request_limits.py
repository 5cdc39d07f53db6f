from __future__ import annotations

import time

import requests
from azure.identity import DefaultAzureCredential

from harness.local_workspace import SDK_WARNINGS, Local
from localazure import limits

pytestmark = SDK_WARNINGS


def test_the_sdk_waits_as_long_as_it_is_asked_to(local: Local) -> None:
    environment = local.environment
    token = DefaultAzureCredential().get_token(f"{environment.azure_ml_url}/.default").token
    url = (
        f"{environment.azure_ml_url}/subscriptions/{environment.subscription_id}"
        f"/resourceGroups/{environment.resource_group}/providers"
        f"/Microsoft.MachineLearningServices/workspaces/{environment.workspace}"
    )
    with requests.Session() as session:
        session.verify = str(environment.ca_bundle)
        session.headers["Authorization"] = f"Bearer {token}"
        deadline = time.monotonic() + 60
        while (response := session.get(url)).status_code != 429:
            assert time.monotonic() < deadline
    assert response.headers["Retry-After"] == "1"
    assert response.headers["x-ms-ratelimit-remaining-subscription-reads"] == "0"
    assert response.json()["error"]["code"] == "SubscriptionRequestsThrottled"
    # A burst that the SDK's retries outlast.
    for _ in range(2 * limits.ARM_READS.value):
        assert local.ml.workspaces.get(environment.workspace).name == environment.workspace
