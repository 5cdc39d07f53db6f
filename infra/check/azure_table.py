"""What Azure asks of each type of resource that we deploy: its name, required values, private link.

Names: https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
Private link: https://learn.microsoft.com/azure/private-link/private-endpoint-dns
Flex Consumption: https://learn.microsoft.com/azure/azure-functions/flex-consumption-plan
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.check.expressions import SUFFIX


@dataclass(frozen=True)
class ByNetwork:
    """A value that depends on `network`."""

    private: Any
    public: Any


@dataclass(frozen=True)
class Form:
    """Any text of a form, in words for messages."""

    pattern: str
    words: str

    def __eq__(self, value: object) -> bool:
        return isinstance(value, str) and re.fullmatch(self.pattern, value) is not None

    __hash__ = None  # pyright: ignore[reportAssignmentType] - it is equal to many texts

    def __repr__(self) -> str:
        return self.words


@dataclass(frozen=True)
class OneOf:
    """One of some values, or a number of a range."""

    values: tuple[Any, ...] | range

    def __eq__(self, value: object) -> bool:
        return type(value) is type(self.values[0]) and value in self.values

    __hash__ = None  # pyright: ignore[reportAssignmentType] - it is equal to many values

    def __repr__(self) -> str:
        if isinstance(self.values, range):
            return f"{self.values[0]} to {self.values[-1]}"
        return f"one of {', '.join(map(repr, self.values))}"


@dataclass(frozen=True)
class Kind:
    """One type of resource."""

    name: str = r".+"
    """Pattern of the last part of its name."""
    body: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Path -> the value that it must have."""
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Part that private link reaches (its group id) -> zones that resolve it."""
    links: Mapping[str, str] = field(default_factory=dict[str, str])
    """Path -> type of the resource whose id stands there."""
    delegation: str | None = None
    """What the subnet at `subnet` is delegated to."""
    subnet: str = ""
    """Path to the id of the subnet that it uses with `network=private`."""
    calls_out: bool = False
    """Whether that subnet needs a NAT gateway."""
    identity: str = ""
    """Path to the identity that it acts with: its roles must be there before."""


_CLOSED = ByNetwork("Disabled", "Enabled")
_FIREWALL = {
    "properties.publicNetworkAccess": _CLOSED,
    "properties.networkAcls.defaultAction": ByNetwork("Deny", "Allow"),
    "properties.networkAcls.bypass": "AzureServices",
}
_SCALE = "properties.functionAppConfig.scaleAndConcurrency"
_DEAD_LETTERS = "properties.deadLetterWithResourceIdentity.deadLetterDestination.properties"
_DASHED = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_DOTTED = r"[A-Za-z0-9]([\w.-]*\w)?"
_GUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
STORAGE_PARTS = {
    part: (f"privatelink.{part}.{SUFFIX}",)
    for part in ("blob", "queue", "table", "file", "dfs", "web")
}


def _length(least: int, most: int, pattern: str) -> str:
    return rf"(?=.{{{least},{most}}}$){pattern}"


_ENTITY = _length(1, 260, r"[A-Za-z0-9]([\w./-]*[A-Za-z0-9])?")
KINDS: Mapping[str, Kind] = {
    "Microsoft.Authorization/roleAssignments": Kind(_GUID),
    "Microsoft.Authorization/roleDefinitions": Kind(_GUID),
    "Microsoft.Consumption/budgets": Kind(_length(1, 63, r"[\w-]+")),
    "Microsoft.ContainerRegistry/registries": Kind(
        r"[A-Za-z0-9]{5,50}",
        {
            "properties.adminUserEnabled": False,
            "properties.publicNetworkAccess": _CLOSED,
            "properties.networkRuleBypassOptions": "AzureServices",
            "sku.name": ByNetwork("Premium", "Basic"),
        },
        {"registry": ("privatelink.azurecr.io",)},
    ),
    "Microsoft.DurableTask/schedulers": Kind(_length(3, 64, _DASHED)),
    "Microsoft.DurableTask/schedulers/taskHubs": Kind(_length(3, 64, _DASHED)),
    "Microsoft.EventGrid/systemTopics": Kind(
        _length(3, 50, _DASHED), {"identity.type": "SystemAssigned"}
    ),
    "Microsoft.EventGrid/systemTopics/eventSubscriptions": Kind(
        _length(3, 64, _DASHED),
        links={
            "properties.deliveryWithResourceIdentity.destination.properties.resourceId": (
                "Microsoft.ServiceBus/namespaces"
            ),
            f"{_DEAD_LETTERS}.resourceId": ("Microsoft.Storage/storageAccounts"),
        },
        identity="parent",
    ),
    "Microsoft.EventGrid/topics": Kind(
        _length(3, 50, _DASHED),
        {
            "properties.disableLocalAuth": True,
            "properties.minimumTlsVersionAllowed": "1.2",
            "properties.publicNetworkAccess": _CLOSED,
        },
        {"topic": ("privatelink.eventgrid.azure.net",)},
    ),
    "Microsoft.Insights/actionGroups": Kind(
        _length(1, 260, _DOTTED),
        {"location": "global", "properties.groupShortName": Form(r".{1,12}", "1 to 12 characters")},
    ),
    "Microsoft.Insights/components": Kind(
        _length(1, 260, _DOTTED),
        links={"properties.WorkspaceResourceId": "Microsoft.OperationalInsights/workspaces"},
    ),
    "Microsoft.Insights/metricAlerts": Kind(
        _length(1, 260, _DOTTED),
        {"location": "global", "properties.enabled": True},
        links={"properties.actions.0.actionGroupId": "Microsoft.Insights/actionGroups"},
    ),
    "Microsoft.Insights/scheduledQueryRules": Kind(
        _length(1, 260, _DOTTED),
        {"properties.enabled": True},
        links={
            "properties.scopes.0": "Microsoft.Insights/components",
            "properties.actions.actionGroups.0": "Microsoft.Insights/actionGroups",
        },
    ),
    "Microsoft.KeyVault/vaults": Kind(
        _length(3, 24, r"(?!.*--)[A-Za-z][A-Za-z0-9-]*[A-Za-z0-9]"),
        {"properties.enableRbacAuthorization": True, **_FIREWALL},
        {"vault": ("privatelink.vaultcore.azure.net",)},
    ),
    "Microsoft.MachineLearningServices/workspaces": Kind(
        _length(3, 33, r"[A-Za-z0-9][\w-]*"),
        {
            "properties.systemDatastoresAuthMode": "Identity",
            "properties.publicNetworkAccess": _CLOSED,
            "properties.imageBuildCompute": ByNetwork(Form(".+", "a cluster"), None),
            "identity.type": "SystemAssigned",
        },
        {"amlworkspace": ("privatelink.api.azureml.ms", "privatelink.notebooks.azure.net")},
        {
            "properties.storageAccount": "Microsoft.Storage/storageAccounts",
            "properties.keyVault": "Microsoft.KeyVault/vaults",
            "properties.containerRegistry": "Microsoft.ContainerRegistry/registries",
            "properties.applicationInsights": "Microsoft.Insights/components",
        },
    ),
    "Microsoft.MachineLearningServices/workspaces/computes": Kind(
        _length(2, 32, r"[A-Za-z][A-Za-z0-9-]*[A-Za-z0-9]"),
        {
            "identity.type": "UserAssigned",
            "properties.disableLocalAuth": True,
            "properties.properties.enableNodePublicIp": ByNetwork(private=False, public=True),
            "properties.properties.remoteLoginPortPublicAccess": "Disabled",
            "properties.properties.scaleSettings.minNodeCount": 0,
            "properties.properties.scaleSettings.maxNodeCount": OneOf(range(1, 10_000)),
        },
        subnet="properties.properties.subnet.id",
        calls_out=True,
        identity="identity.userAssignedIdentities",
    ),
    "Microsoft.MachineLearningServices/workspaces/datastores": Kind(
        _length(1, 255, r"[a-z0-9_]+"),
        {
            "properties.credentials.credentialsType": "None",
            "properties.protocol": "https",
            "properties.endpoint": SUFFIX,
        },
    ),
    "Microsoft.ManagedIdentity/userAssignedIdentities": Kind(_length(3, 128, r"[A-Za-z0-9][\w-]*")),
    "Microsoft.Network/natGateways": Kind(
        _length(1, 80, _DOTTED),
        {"sku.name": "Standard"},
        links={"properties.publicIpAddresses.0.id": "Microsoft.Network/publicIPAddresses"},
    ),
    "Microsoft.Network/privateDnsZones": Kind(_length(1, 63, r"[\w.-]+"), {"location": "global"}),
    "Microsoft.Network/privateDnsZones/virtualNetworkLinks": Kind(
        _length(1, 80, _DOTTED), {"location": "global", "properties.registrationEnabled": False}
    ),
    "Microsoft.Network/privateEndpoints": Kind(
        _length(2, 64, _DOTTED), subnet="properties.subnet.id"
    ),
    "Microsoft.Network/privateEndpoints/privateDnsZoneGroups": Kind(_length(1, 80, _DOTTED)),
    "Microsoft.Network/publicIPAddresses": Kind(
        _length(1, 80, _DOTTED),
        {"sku.name": "Standard", "properties.publicIPAllocationMethod": "Static"},
    ),
    "Microsoft.Network/virtualNetworks": Kind(_length(2, 64, _DOTTED)),
    "Microsoft.OperationalInsights/workspaces": Kind(
        _length(4, 63, _DASHED), {"properties.retentionInDays": OneOf(range(30, 731))}
    ),
    "Microsoft.Resources/resourceGroups": Kind(_length(1, 90, r"[\w().-]*[\w()-]")),
    "Microsoft.ServiceBus/namespaces": Kind(
        _length(6, 50, r"[A-Za-z][A-Za-z0-9-]*[A-Za-z0-9](?<!-sb)(?<!-mgmt)"),
        {
            "properties.disableLocalAuth": True,
            "properties.minimumTlsVersion": "1.2",
            "properties.publicNetworkAccess": _CLOSED,
            "sku.name": ByNetwork("Premium", "Standard"),
            "sku.tier": ByNetwork("Premium", "Standard"),
            "sku.capacity": ByNetwork(OneOf((1, 2, 4, 8, 16)), None),
        },
        {"namespace": ("privatelink.servicebus.windows.net",)},
    ),
    "Microsoft.ServiceBus/namespaces/networkRuleSets": Kind(
        "default",
        {
            "properties.defaultAction": "Deny",
            "properties.publicNetworkAccess": "Disabled",
            "properties.trustedServiceAccessEnabled": True,
        },
    ),
    "Microsoft.ServiceBus/namespaces/queues": Kind(_ENTITY),
    "Microsoft.ServiceBus/namespaces/topics": Kind(_ENTITY),
    "Microsoft.ServiceBus/namespaces/topics/subscriptions": Kind(_length(1, 50, _DOTTED)),
    "Microsoft.Storage/storageAccounts": Kind(
        r"[a-z0-9]{3,24}",
        {
            "properties.allowSharedKeyAccess": False,
            "properties.allowBlobPublicAccess": False,
            "properties.allowCrossTenantReplication": False,
            "properties.defaultToOAuthAuthentication": True,
            "properties.dnsEndpointType": "Standard",
            "properties.minimumTlsVersion": "TLS1_2",
            "properties.supportsHttpsTrafficOnly": True,
            **_FIREWALL,
        },
        STORAGE_PARTS,
    ),
    "Microsoft.Storage/storageAccounts/blobServices": Kind(
        "default", {"properties.deleteRetentionPolicy.enabled": True}
    ),
    "Microsoft.Storage/storageAccounts/blobServices/containers": Kind(
        _length(3, 63, r"(?!.*--)[a-z0-9][a-z0-9-]*[a-z0-9]")
    ),
    "Microsoft.Storage/storageAccounts/managementPolicies": Kind("default"),
    "Microsoft.Web/serverfarms": Kind(
        _length(1, 60, r"[A-Za-z0-9-]+"),
        {"sku.name": "FC1", "sku.tier": "FlexConsumption", "properties.reserved": True},
    ),
    "Microsoft.Web/sites": Kind(
        _length(2, 60, _DASHED),
        {
            "kind": "functionapp,linux",
            "identity.type": "UserAssigned",
            "properties.httpsOnly": True,
            "properties.siteConfig.minTlsVersion": "1.2",
            "properties.siteConfig.scmMinTlsVersion": "1.2",
            "properties.siteConfig.ftpsState": "Disabled",
            "properties.functionAppConfig.runtime.name": "python",
            "properties.functionAppConfig.deployment.storage.type": "blobContainer",
            "properties.functionAppConfig.deployment.storage.authentication.type": (
                "UserAssignedIdentity"
            ),
            f"{_SCALE}.instanceMemoryMB": OneOf((512, 2048, 4096)),
            f"{_SCALE}.maximumInstanceCount": OneOf(range(1, 1001)),
            f"{_SCALE}.triggers.http.perInstanceConcurrency": (OneOf(range(1, 1001))),
        },
        links={"properties.serverFarmId": "Microsoft.Web/serverfarms"},
        delegation="Microsoft.App/environments",
        subnet="properties.virtualNetworkSubnetId",
        calls_out=True,
        identity="identity.userAssignedIdentities",
    ),
    "Microsoft.Web/sites/basicPublishingCredentialsPolicies": Kind(
        "ftp|scm", {"properties.allow": False}
    ),
    "Microsoft.Web/sites/config": Kind("appsettings"),
}
ZONES = frozenset(
    zone for each in KINDS.values() for zones in each.parts.values() for zone in zones
)
"""Names of all zones of private link that a part above needs."""
REQUIRED_WITH = {"private": {"Microsoft.ServiceBus/namespaces": "networkRuleSets"}}
"""Network -> a type of which each resource needs a child of a type."""
AFTER_SIBLING = {
    "Microsoft.Storage/storageAccounts/managementPolicies": "blobServices",
}
"""Type -> type of a sibling that must be there before: versions must be on to be deleted."""
