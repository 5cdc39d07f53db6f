"""Role assignments: the table `infra/roles.json` in the app's folder, which its Bicep uses, too.

An app without this file has all permissions, as with account keys. Files that have changed are
reloaded, because assignments may change while services run.

`scopes.json` maps the names of scopes to local resources: `storageAccounts/NAME`,
`storageAccounts/NAME/containers/NAME`, `serviceBus`, `serviceBus/ENTITY`, `topics/NAME`,
`workspace`, `subscription`, `userAssignedIdentities/NAME`. A role on a resource applies to all
resources below it. The file's `identities` maps the names of Event Grid topics to the principals
of their identities.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from pydantic import Field

from localazure.configuration_file import ConfigurationModel
from localazure.runtime.environment import Environment
from localazure.runtime.identity import APP, CLUSTER
from localazure.watched_configuration import WatchedConfiguration

# Patterns of data actions; `*` matches slashes, too.
# https://learn.microsoft.com/azure/role-based-access-control/built-in-roles
DATA_ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "Storage Blob Data Owner": ("containers/*", "blobServices/generateUserDelegationKey/action"),
    "Storage Blob Data Contributor": (
        "containers/read",
        "containers/write",
        "containers/delete",
        "containers/blobs/*",
        "blobServices/generateUserDelegationKey/action",
    ),
    "Storage Blob Data Reader": (
        "containers/read",
        "containers/blobs/read",
        "blobServices/generateUserDelegationKey/action",
    ),
    "Storage Blob Delegator": ("blobServices/generateUserDelegationKey/action",),
    "Storage Queue Data Contributor": ("queues/*",),
    "Storage Queue Data Reader": ("queues/read", "queues/messages/read"),
    "Storage Queue Data Message Processor": ("queues/messages/read", "queues/messages/process"),
    "Storage Queue Data Message Sender": ("queues/messages/add",),
    "Storage Table Data Contributor": ("tables/*",),
    "Storage Table Data Reader": ("tables/read", "tables/entities/read"),
    "Azure Service Bus Data Owner": ("messages/*", "entities/manage"),
    "Azure Service Bus Data Sender": ("messages/send",),
    "Azure Service Bus Data Receiver": ("messages/receive",),
    "EventGrid Data Sender": ("events/send",),
    "Managed Identity Operator": ("userAssignedIdentities/assign",),
}


class Assignment(ConfigurationModel):
    """One row: a principal has a role on a scope."""

    principal: str
    role: str
    role_id: str | None = None
    scope: str
    when: str
    reason: str


class CustomRole(ConfigurationModel):
    """A role that the table defines, with its allowed actions."""

    role: str
    actions: tuple[str, ...]
    reason: str


class _Table(ConfigurationModel):
    custom_roles: tuple[CustomRole, ...] = ()
    assignments: tuple[Assignment, ...]


class _Scopes(ConfigurationModel):
    scopes: dict[str, str] = Field(default_factory=dict[str, str])
    identities: dict[str, str] = Field(default_factory=dict[str, str])


class RoleAssignments:
    """The role assignments of a table, if it exists.

    Args:
        table: the file with the assignments.
        scopes: the file that maps names of scopes to resources.

    Raises:
        ConfigurationError: a file is not valid.
    """

    def __init__(self, table: Path, scopes: Path) -> None:
        self._table = WatchedConfiguration(table, _Table)
        self._scopes = WatchedConfiguration(scopes, _Scopes)
        self._table.read()
        self._scopes.read()

    @classmethod
    def from_environment(cls, environment: Environment) -> RoleAssignments:
        """Return the role assignments of the environment's app."""
        return cls(environment.app / "infra" / "roles.json", environment.scopes_config)

    @property
    def are_enforced(self) -> bool:
        """Whether there is a table, so that services check roles."""
        return self._table.read() is not None

    @property
    def principals(self) -> frozenset[str]:
        """The app, the clusters, and all other principals with a role."""
        table = self._table.read()
        rows = () if table is None else table.assignments
        return frozenset({APP, CLUSTER, *(row.principal for row in rows)})

    def identity_of(self, topic: str) -> str:
        """Return the principal of an Event Grid topic's identity; by default, the topic's name."""
        scopes = self._scopes.read()
        return topic if scopes is None else scopes.identities.get(topic, topic)

    def roles(self, principal: str, resource: str) -> Collection[str] | None:
        """Return a principal's roles on a resource or above it; None if there is no table."""
        table = self._table.read()
        if table is None:
            return None
        scopes = self._scopes.read()
        resources = {} if scopes is None else scopes.scopes
        return {
            row.role
            for row in table.assignments
            if row.principal == principal
            and f"{resource}/".startswith(f"{resources.get(row.scope, row.scope)}/")
        }

    def custom_actions(self, principal: str, resource: str) -> Collection[str]:
        """Return lower-case actions that a principal's custom roles allow on a resource."""
        table, roles = self._table.read(), self.roles(principal, resource)
        if table is None or roles is None:
            return ()
        return {
            action.lower()
            for each in table.custom_roles
            if each.role in roles
            for action in each.actions
        }

    def permit(self, principal: str, resource: str, action: str) -> bool:
        """Whether a data action on a resource is allowed. Without a table, all actions are."""
        roles = self.roles(principal, resource)
        return roles is None or any(
            fnmatchcase(action, pattern) for role in roles for pattern in DATA_ROLES.get(role, ())
        )
