from __future__ import annotations

import time

import requests

from harness.local_workspace import Local
from localazure import limits
from localazure.machinelearning.addresses import workspace_id


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
