"""Permissions of an identity's roles in the workspace, and on the quota.

Sources: https://learn.microsoft.com/azure/machine-learning/how-to-assign-roles and
https://learn.microsoft.com/azure/role-based-access-control/troubleshooting. A role without actions
of a workspace allows nothing in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from localazure.machinelearning.errors import ArmError

SCOPE = "workspace"
SUBSCRIPTION_SCOPE = "subscription"
LOCATIONS = "microsoft.machinelearningservices/locations"
QUOTA_COLLECTIONS = ("/usages", "/vmsizes")
"""Paths, below a location of the subscription, that only a custom role may read."""
_WORKSPACES = "microsoft.machinelearningservices/workspaces"
_VERBS = {"GET": "read", "HEAD": "read", "PUT": "write", "PATCH": "write", "DELETE": "delete"}


@dataclass(frozen=True)
class Role:
    """Patterns of actions, in lower case; `*` also matches slashes."""

    actions: Sequence[str]
    not_actions: Sequence[str] = ()

    def allows(self, action: str) -> bool:
        """Whether this role alone allows an action."""
        return _matches(action, self.actions) and not _matches(action, self.not_actions)


ROLES: Mapping[str, Role] = {
    # All actions in a workspace, except to create or delete compute or the workspace itself.
    "AzureML Data Scientist": Role(
        (f"{_WORKSPACES}/*",),
        (
            f"{_WORKSPACES}/write",
            f"{_WORKSPACES}/delete",
            f"{_WORKSPACES}/computes/write",
            f"{_WORKSPACES}/computes/delete",
            f"{_WORKSPACES}/computes/listkeys/action",
            f"{_WORKSPACES}/listkeys/action",
        ),
    ),
    "AzureML Compute Operator": Role((f"{_WORKSPACES}/computes/*",)),
    "Monitoring Reader": Role(("*/read",)),
}


def action_of(method: str, segments: Sequence[str]) -> str:
    """The action of a request, in lower case, such as `…/workspaces/jobs/write`.

    Args:
        method: HTTP method.
        segments: of the path after the workspace's name: types and names alternate, and a POST has
            the action at the end.
    """
    verb = _VERBS.get(method.upper(), "action")
    if "providers" in segments:  # another provider's resource, such as metrics
        provider, *rest = segments[segments.index("providers") + 1 :]
        return "/".join([provider, *rest[0::2], verb]).lower()
    return "/".join([_WORKSPACES, *segments[0::2], verb]).lower()


def authorize(principal: str, roles: Collection[str] | None, action: str, scope: str) -> None:
    """Check that one of a principal's roles allows an action; `roles` None: no table of roles.

    Raises:
        ArmError: 403, in ARM's words.
    """
    if roles is None or any(role in ROLES and ROLES[role].allows(action) for role in roles):
        return
    raise authorization_failed(principal, action, scope)


def authorization_failed(principal: str, action: str, scope: str) -> ArmError:
    """The error for an action that is not allowed, with ARM's message."""
    return ArmError(
        403,
        "AuthorizationFailed",
        f"The client {principal!r} does not have authorization to perform action '{action}' over "
        f"scope '{scope}' or the scope is invalid. If access was recently granted, please refresh "
        "your credentials. (infra/roles.json has what is granted.)",
    )


def check_assignment(
    principal: str,
    identities: Iterable[str],
    scope: str,
    permit: Callable[[str, str, str], bool],
) -> None:
    """Check that a principal may assign these user-assigned identities to a resource.

    Args:
        principal: the caller.
        identities: resource ids.
        scope: the id of the resource.
        permit: returns whether a principal's roles on a resource allow an action.

    Raises:
        ArmError: 403, in ARM's words.
    """
    for identity in identities:
        name = identity.rstrip("/").rpartition("/")[2]
        resource = f"userAssignedIdentities/{name}"
        if not permit(principal, resource, "userAssignedIdentities/assign"):
            raise ArmError(
                403,
                "LinkedAuthorizationFailed",
                f"The client {principal!r} has permission to perform action "
                f"'{_WORKSPACES}/computes/write' on scope '{scope}'; however, it does not have "
                "permission to perform action(s) "
                "'Microsoft.ManagedIdentity/userAssignedIdentities/assign/action' on the linked "
                f"scope(s) '{identity}' (respectively) or the linked scope(s) are invalid. "
                "(infra/roles.json has what is granted.)",
            )


def _matches(action: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(action, pattern) for pattern in patterns)
