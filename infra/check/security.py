"""Required properties of each resource type: identities only, TLS 1.2, no public access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from infra.check.bicep_file import BicepFile, text
from infra.check.expressions import UNKNOWN, evaluate
from infra.check.problem import Problem

KEY_FUNCTIONS = ("listKeys", "listAccountSas", "listServiceSas", "listSecrets", "listCredentials")
# By type: path in the resource's body -> its value.
REQUIRED: Mapping[str, Mapping[str, Any]] = {
    "Microsoft.Storage/storageAccounts": {
        "properties.allowSharedKeyAccess": False,
        "properties.allowBlobPublicAccess": False,
        "properties.allowCrossTenantReplication": False,
        "properties.minimumTlsVersion": "TLS1_2",
        "properties.supportsHttpsTrafficOnly": True,
    },
    "Microsoft.ServiceBus/namespaces": {
        "properties.disableLocalAuth": True,
        "properties.minimumTlsVersion": "1.2",
    },
    "Microsoft.EventGrid/topics": {
        "properties.disableLocalAuth": True,
        "properties.minimumTlsVersionAllowed": "1.2",
    },
    "Microsoft.KeyVault/vaults": {"properties.enableRbacAuthorization": True},
    "Microsoft.ContainerRegistry/registries": {"properties.adminUserEnabled": False},
    "Microsoft.MachineLearningServices/workspaces": {
        "properties.systemDatastoresAuthMode": "Identity"
    },
    "Microsoft.MachineLearningServices/workspaces/computes": {"properties.disableLocalAuth": True},
    "Microsoft.MachineLearningServices/workspaces/datastores": {
        "properties.credentials.credentialsType": "None"
    },
    "Microsoft.Web/sites": {
        "properties.httpsOnly": True,
        "properties.siteConfig.minTlsVersion": "1.2",
        "properties.siteConfig.scmMinTlsVersion": "1.2",
        "properties.siteConfig.ftpsState": "Disabled",
    },
    "Microsoft.Web/sites/basicPublishingCredentialsPolicies": {"properties.allow": False},
}


def check(file: BicepFile) -> Iterator[Problem]:
    """No function that reads a key; every resource is closed as REQUIRED says."""
    for node in file.nodes:
        called = text(node.named_children[0]) if node.type == "call_expression" else ""
        if called.rpartition(".")[2] in KEY_FUNCTIONS:
            yield file.problem(node, f"{called}: no key is ever read, use an identity")
    for resource in file.resources:
        if resource.existing or resource.body is None:
            continue
        body = evaluate(resource.body, file)
        for path, wanted in REQUIRED.get(resource.type, {}).items():
            value: Any = body
            for key in path.split("."):
                value = value.get(key) if isinstance(value, dict) else None
            if value is UNKNOWN or value != wanted:
                said = "an expression" if value is UNKNOWN else repr(value)
                message = f"{resource.symbol}: {path} must be {wanted!r}, it is {said}"
                yield file.problem(resource.node, message)
