"""Before provisioning: stop where the network of what is deployed would change unasked.

azd runs this with its environment. The resource group's tag `landfall-network` says what is there.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping

ARM = "https://management.azure.com"
TAG = "landfall-network"
NOT_FOUND = 404
HTTP_TIMEOUT_SECONDS = 60.0
COSTS = {
    "public": "endpoints on the internet again, reached by identity only; at rest 16.44 a month",
    "private": "at rest 858.41 a month instead of 16.44",
}
"""US dollars: docs/deploy.md, What it costs."""


def refusal(before: str | None, wanted: str, agreed: str) -> str | None:
    """Why this deployment must not go on; None if it may.

    Args:
        before: the network of what is deployed; None if nothing is.
        wanted: `LANDFALL_NETWORK`.
        agreed: `LANDFALL_NETWORK_CHANGE`, the change that a person asked for.
    """
    change = f"{before}-to-{wanted}"
    if before in {None, wanted} or agreed == change:
        return None
    return (
        f"not provisioned: {before} is deployed, LANDFALL_NETWORK is {wanted}. What that costs: "
        f"{COSTS[wanted]}; Service Bus cannot change its tier in place, so the namespace has to be "
        "made again and messages in its queues are lost: let all runs end first. "
        f"To do it: azd env set LANDFALL_NETWORK_CHANGE {change}"
    )


def deployed_network(environment: Mapping[str, str]) -> str | None:
    """The tag of the resource group; None without a group or its tag."""
    if "AZURE_SUBSCRIPTION_ID" not in environment:
        return None  # the first run, before azd asks for one
    from azure.identity import DefaultAzureCredential  # noqa: PLC0415 - azd installs it for the hook

    group = environment.get("LANDFALL_RESOURCE_GROUP") or f"rg-{environment['AZURE_ENV_NAME']}"
    url = (
        f"{ARM}/subscriptions/{environment['AZURE_SUBSCRIPTION_ID']}/resourcegroups/{group}"
        "?api-version=2025-04-01"
    )
    token = DefaultAzureCredential().get_token(f"{ARM}/.default").token
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})  # noqa: S310 - ARM's own
    try:
        with urllib.request.urlopen(request, timeout=HTTP_TIMEOUT_SECONDS) as answer:  # noqa: S310 - the same
            return json.load(answer).get("tags", {}).get(TAG)
    except urllib.error.HTTPError as error:
        if error.code != NOT_FOUND:
            raise
        return None


def main() -> int:
    """Compare what is deployed with what is asked for."""
    wanted = os.environ.get("LANDFALL_NETWORK") or "public"
    agreed = os.environ.get("LANDFALL_NETWORK_CHANGE", "")
    message = refusal(deployed_network(os.environ), wanted, agreed)
    if message is not None:
        print(message, file=sys.stderr)  # noqa: T201
    return 0 if message is None else 1


if __name__ == "__main__":
    sys.exit(main())
