"""After deployment: land a tiny batch, wait for its run's end, print where to see it.

azd runs this with its environment, whose values main.bicep's outputs are. By hand, also against the
laptop, it needs the function's key; docs/deploy.md has the command.

1. Remember which runs of pipeline `smoke` there are.
2. Upload three files that say when, and the marker: content that never landed before.
3. Poll `GET /api/runs` until a new run has ended. On Azure a cluster grows from no node meanwhile.
   A run that failed because a role did not count yet is no answer: land again.
4. Exit status 0 for `succeeded` and `not_promoted`: the data reached the end of the workflow; also
   where a private network is closed to this machine: nothing says that the deployment is bad.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # azd runs this file by itself
from infra.hooks.webhook_secrets import WAITS_SECONDS, Unreachable, patiently

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

PIPELINE = "smoke"
GOOD_ENDS = frozenset({"succeeded", "not_promoted"})
ENDS = GOOD_ENDS | {"rejected", "failed", "cancelled", "superseded", "retrying"}
DEFAULT_TIMEOUT_SECONDS = 1800.0
POLL_SECONDS = 2.0
HTTP_TIMEOUT_SECONDS = 60.0
ARM = "https://management.azure.com"


def batch(now: datetime) -> dict[str, bytes]:
    """Path below the landing zone -> content; the marker last."""
    files = {f"{number}.txt": f"{number} {now.isoformat()}\n".encode() for number in range(3)}
    return {**files, "_SUCCESS": b""}


def ended_run(runs: list[dict[str, Any]], earlier: set[str]) -> dict[str, Any] | None:
    """The new run that has ended, if there is one."""
    new = (each for each in runs if each["id"] not in earlier and each["state"] in ENDS)
    return next(new, None)


def lacks_a_role(run: Mapping[str, Any]) -> bool:
    """Whether a run ended because a service refused an identity, as new roles take minutes."""
    said = json.dumps([run.get("error"), run.get("reason")])
    return (
        re.search(r"\b403\b|Authorization(Failed|PermissionMismatch)|Forbidden", said) is not None
    )


def links(run: Mapping[str, Any], environment: Mapping[str, str]) -> list[str]:
    """Return the address of the run's page."""
    addresses = [f"{environment['LANDFALL_URL']}/api/runs/{run['id']} (with a function key)"]
    if "LANDFALL_WORKSPACE_NAME" in environment:
        workspace = (
            f"/subscriptions/{environment['LANDFALL_SUBSCRIPTION_ID']}"
            f"/resourceGroups/{environment['LANDFALL_WORKSPACE_RESOURCE_GROUP']}"
            f"/workspaces/{environment['LANDFALL_WORKSPACE_NAME']}"
        )
        addresses.append(f"https://ml.azure.com/runs/{run['id']}?wsid={workspace}")
    return addresses


def main(environment: Mapping[str, str]) -> int:
    """The numbered steps of the module."""
    timeout = float(environment.get("LANDFALL_SMOKE_TIMEOUT_SECONDS", DEFAULT_TIMEOUT_SECONDS))
    key = environment.get("LANDFALL_FUNCTION_KEY") or patiently(
        lambda: _function_key(environment), "smoke test: the function key"
    )
    earlier = {
        each["id"] for each in patiently(lambda: _runs(environment, key), "smoke test: the app")
    }
    container = landing_container(environment)
    try:
        land(container)
    except Unreachable:
        print(  # noqa: T201
            "smoke test: not run, since the account is closed to this machine. All is deployed; "
            "run infra/hooks/smoke_test.py from a machine in the network"
        )
        return 0
    print("smoke test: the batch has landed; waiting for its run …", flush=True)  # noqa: T201
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        try:
            run = ended_run(_runs(environment, key), earlier)
        except OSError as error:  # a new instance starts, or the network hiccups: asked again
            print(f"smoke test: {error}; asking again", flush=True)  # noqa: T201
            run = None
        if run is not None and lacks_a_role(run):
            earlier.add(run["id"])
            print(f"smoke test: run {run['id']} was refused, roles take minutes; again", flush=True)  # noqa: T201
            time.sleep(WAITS_SECONDS[2])
            land(container)
        elif run is not None:
            print(f"smoke test: run {run['id']}: {run['state']}")  # noqa: T201
            for link in links(run, environment):
                print(f"  {link}")  # noqa: T201
            if run["state"] not in GOOD_ENDS:
                print(f"  {json.dumps(run.get('error') or run.get('reason'))}")  # noqa: T201
            return 0 if run["state"] in GOOD_ENDS else 1
        time.sleep(POLL_SECONDS)
    print(  # noqa: T201
        f"smoke test: no run has ended within {timeout:.0f} s; ask GET /api/explain?blob="
        f"{PIPELINE}/0.txt what became of the batch, and see docs/deploy.md, the first live run"
    )
    return 1


def land(container: ContainerClient) -> None:
    """Upload a batch, its marker last.

    Raises:
        Unreachable: the account is closed to this machine.
    """
    for path, content in batch(datetime.now(UTC)).items():
        patiently(
            lambda path=path, content=content: container.upload_blob(
                f"{PIPELINE}/{path}", content, overwrite=True
            ),
            "smoke test: the upload",
        )


def _runs(environment: Mapping[str, str], key: str) -> list[dict[str, Any]]:
    url = f"{environment['LANDFALL_URL']}/api/runs?pipeline={PIPELINE}"
    return _json(urllib.request.Request(url, headers={"x-functions-key": key}))["runs"]  # noqa: S310 - the app's own


def landing_container(environment: Mapping[str, str]) -> ContainerClient:
    """The landing zone's container, by the deployer's identity."""
    from azure.identity import DefaultAzureCredential  # noqa: PLC0415 - azd installs it for the hook
    from azure.storage.blob import BlobServiceClient  # noqa: PLC0415 - the same

    name = environment.get("LANDFALL_LANDING_CONTAINER", "landing")
    account = BlobServiceClient(environment["LANDFALL_DATA_URL"], DefaultAzureCredential())
    return account.get_container_client(name)


def _function_key(environment: Mapping[str, str]) -> str:
    """The app's default host key, which the deployer may read. It is not stored."""
    from azure.identity import DefaultAzureCredential  # noqa: PLC0415 - azd installs it for the hook

    token = DefaultAzureCredential().get_token(f"{ARM}/.default").token
    url = (
        f"{ARM}/subscriptions/{environment['LANDFALL_SUBSCRIPTION_ID']}"
        f"/resourceGroups/{environment['AZURE_RESOURCE_GROUP']}/providers/Microsoft.Web/sites"
        f"/{environment['LANDFALL_APP_NAME']}/host/default/listKeys?api-version=2024-11-01"
    )
    headers = {"Authorization": f"Bearer {token}", "Content-Length": "0"}
    request = urllib.request.Request(url, method="POST", headers=headers)  # noqa: S310 - ARM's own
    return _json(request)["functionKeys"]["default"]


def _json(request: urllib.request.Request) -> Any:
    with urllib.request.urlopen(request, timeout=HTTP_TIMEOUT_SECONDS) as answer:  # noqa: S310 - the same
        return json.load(answer)


if __name__ == "__main__":
    sys.exit(main(os.environ))
