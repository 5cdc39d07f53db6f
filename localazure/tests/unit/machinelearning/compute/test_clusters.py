from __future__ import annotations

from typing import Any

import pytest

from localazure.machinelearning.compute.clusters import identity_of
from localazure.machinelearning.store import Resource

RESOURCE = "/subscriptions/s/providers/Microsoft.ManagedIdentity/userAssignedIdentities/"


@pytest.mark.parametrize(
    ("identity", "principal"),
    [
        (None, None),
        ({"type": "None"}, None),
        ({"type": "UserAssigned", "userAssignedIdentities": {f"{RESOURCE}cluster": {}}}, "cluster"),
        (
            {
                "type": "UserAssigned",
                "userAssignedIdentities": {f"{RESOURCE}first": {}, f"{RESOURCE}second": {}},
            },
            "first",
        ),
        ({"type": "SystemAssigned"}, "computes/gpu"),
        (
            {
                "type": "SystemAssigned,UserAssigned",
                "userAssignedIdentities": {f"{RESOURCE}first": {}},
            },
            "computes/gpu",
        ),
    ],
)
def test_the_default_identity_of_a_cluster_is_the_systems_or_the_first(
    identity: dict[str, Any] | None, principal: str | None
) -> None:
    document = {"properties": {}, "identity": identity}
    resource = Resource(
        number=1,
        collection="computes",
        name="gpu",
        version="",
        document=document,
        created_at=0.0,
        modified_at=0.0,
    )
    assert identity_of(resource) == principal
