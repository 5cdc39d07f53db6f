"""The SDK's operations with different roles of the app's identity on the workspace."""

from __future__ import annotations

import os
from collections.abc import Iterator

import jwt
import pytest
import requests
from azure.ai.ml.entities import Data, IdentityConfiguration, ManagedIdentityConfiguration
from azure.core.exceptions import HttpResponseError

from harness.local_workspace import Local, fault
from harness.role_table import Grant, RoleTable
from localazure.machinelearning.addresses import workspace_id
from localazure.runtime.identity import APP, client_id_of

SCIENTIST, OPERATOR = "AzureML Data Scientist", "AzureML Compute Operator"
QUOTA_READER = "Landfall quota reader"


def register_data(local: Local, name: str) -> None:
    path = "azureml://datastores/landing/paths/x/"
    local.ml.data.create_or_update(Data(name=name, version="1", type="uri_folder", path=path))


def ask_for_token(local: Local, **client: str) -> requests.Response:
    return requests.get(
        os.environ["IDENTITY_ENDPOINT"],
        params={"resource": local.environment.azure_ml_url, **client},
        headers={"X-IDENTITY-HEADER": os.environ["IDENTITY_HEADER"]},
        timeout=10,
    )


def test_each_missing_role_blocks_its_operations(local: Local, grant: Grant) -> None:
    grant(SCIENTIST)
    register_data(local, "roles-scientist")
    with pytest.raises(HttpResponseError, match="workspaces/computes/write") as refused:
        local.make_cluster("roles-scientist")
    assert refused.value.status_code == 403
    assert refused.value.error is not None
    assert refused.value.error.code == "AuthorizationFailed"

    grant(OPERATOR)
    local.make_cluster("roles-operator")
    with pytest.raises(HttpResponseError, match="workspaces/data"):
        register_data(local, "roles-operator")


def test_a_token_is_for_the_identity_that_the_client_id_names(local: Local, grant: Grant) -> None:
    grant(SCIENTIST)
    answer = ask_for_token(local, client_id=client_id_of(APP)).json()
    claims = jwt.decode(answer["access_token"], options={"verify_signature": False})
    assert (claims["oid"], answer["client_id"]) == (APP, client_id_of(APP))
    for unknown in (
        ask_for_token(local),
        ask_for_token(local, client_id=client_id_of("stranger")),
    ):
        assert unknown.status_code == 400
        assert "Managed Identity" in unknown.text


def test_a_token_of_a_clock_that_was_behind_is_expired(local: Local, grant: Grant) -> None:
    grant(SCIENTIST)
    url = local.environment.azure_ml_url

    def status(token: str) -> int:
        workspace = f"{url}{workspace_id(local.environment)}?api-version=2023-10-01"
        headers = {"Authorization": f"Bearer {token}"}
        return requests.get(workspace, headers=headers, timeout=10).status_code

    def issued() -> str:
        return ask_for_token(local, client_id=client_id_of(APP)).json()["access_token"]

    with fault(local, fault="clockSkew", seconds=-2 * 86400):
        of_the_past = issued()
        assert status(of_the_past) == 200  # issuer and checker share the clock
    assert status(of_the_past) == 401
    assert status(issued()) == 200


@pytest.fixture
def with_identities(local: Local) -> Iterator[None]:
    """The app may submit jobs and make clusters; the identity `cluster` may use all blobs."""
    granted = {
        ("app", SCIENTIST, "workspace"),
        ("app", OPERATOR, "workspace"),
        ("app", "Managed Identity Operator", "userAssignedIdentities"),
        ("cluster", "Storage Blob Data Contributor", "storageAccounts"),
    }
    table = RoleTable(local.environment.app)
    more = {"roleId": "i", "when": "always", "reason": "because"}
    table.assign(
        {"principal": principal, "role": role, "scope": scope, **more}
        for principal, role, scope in granted
    )
    yield
    table.remove()


@pytest.mark.usefixtures("with_identities")
def test_a_job_reads_its_data_as_the_identity_of_its_cluster(local: Local) -> None:
    resource = "/subscriptions/s/providers/Microsoft.ManagedIdentity/userAssignedIdentities/cluster"
    assigned = IdentityConfiguration(
        type="user_assigned",
        user_assigned_identities=[ManagedIdentityConfiguration(resource_id=resource)],
    )
    for name, identity in {
        "roles-assigned": assigned,
        "roles-system": IdentityConfiguration(type="system_assigned"),
        "roles-without": None,
    }.items():
        local.make_cluster(name, identity=identity)
        local.submit(name, "true", compute=name)
    local.wait_for("roles-assigned", "Completed")
    local.wait_for("roles-system", "Failed")
    assert "principal 'computes/roles-system'" in local.error("roles-system")
    local.wait_for("roles-without", "Failed")
    said = local.error("roles-without")
    assert "ScriptExecution.StreamAccess" in said
    assert "ManagedIdentityCredential authentication unavailable" in said
    assert "cluster has no managed identity" in said


def test_the_quota_is_read_by_a_role_on_the_subscription(local: Local, grant: Grant) -> None:
    grant(SCIENTIST, QUOTA_READER)
    assert list(local.ml.compute.list_usage(location="localhost"))

    grant(SCIENTIST)
    with pytest.raises(HttpResponseError, match="locations/usages/read"):
        list(local.ml.compute.list_usage(location="localhost"))
