"""Who may do what: exactly the roles that the page lists, on exactly what the app uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infra.check.app_rules import ACCOUNT, CONTAINER, PAGE, WORKSPACE, Facts
from infra.check.deployed_rules import ASSIGNMENT
from infra.check.deployment import MAIN, Deployment
from infra.check.expressions import SUBSCRIPTION_ID
from infra.check.problem import Problem
from infra.check.roles import BUILT_IN, TABLE, Assignment, CustomRole

ROLE_CELLS = 4
"""Of the page's table of roles: who, on, role, when. That of custom roles has fewer."""


def scopes(facts: Facts) -> dict[str, str]:
    """Scope of roles.json -> id of the resource that the app uses as that."""
    subscription = "properties.{}WithResourceIdentity.{}.properties.{}"
    queue = subscription.format("delivery", "destination", "resourceId")
    dead = [
        facts.subscription_value("blobEvents", subscription.format(*parts))
        for parts in (
            ("deadLetter", "deadLetterDestination", "resourceId"),
            ("deadLetter", "deadLetterDestination", "blobContainerName"),
        )
    ]
    container = "/blobServices/default/containers/"
    data = _existing(facts, ACCOUNT, facts.account("DataStorage"))
    landing = facts.datastores.get("landing")
    workspace = facts.computes[0].id.rpartition("/computes/")[0] if facts.computes else ""
    registry = facts.deployed.main.arguments.get("workspaceRegistryName")
    if made := facts.only(WORKSPACE):
        registry = str(made.get("properties.containerRegistry")).rpartition("/")[2]
    return {
        "appAccount": _existing(facts, ACCOUNT, facts.account("AzureWebJobsStorage")),
        "deadLetters": container.join(dead),
        "landing": f"{data}{container}{landing.get(CONTAINER)}" if landing else "",
        "records": f"{data}{container}{facts.settings.get('RECORDS_CONTAINER')}",
        "workspaceAccount": _existing(facts, ACCOUNT, facts.account("WorkspaceStorage")),
        "blobEventsQueue": facts.subscription_value("blobEvents", queue),
        "jobEventsQueue": facts.subscription_value("jobEvents", queue),
        "vault": _existing(facts, "Microsoft.KeyVault/vaults", facts.secrets_vault),
        "workspace": workspace,
        "registry": _existing(facts, "Microsoft.ContainerRegistry/registries", str(registry)),
        "clusterIdentity": facts.cluster,
        "subscription": SUBSCRIPTION_ID,
        "clustersSubnet": str(facts.computes[0].get("properties.properties.subnet.id")),
        **{
            name: made.id
            for name, kind in {
                "serviceBus": "Microsoft.ServiceBus/namespaces",
                "eventTopic": "Microsoft.EventGrid/topics",
                "insights": "Microsoft.Insights/components",
                "scheduler": "Microsoft.DurableTask/schedulers",
            }.items()
            if (made := facts.only(kind))
        },
    }


def _existing(facts: Facts, resource_type: str, name: str) -> str:
    for each in facts.deployed.everything:
        if each.type == resource_type and each.name == name:
            return each.id
    return ""


def _check_definitions(facts: Facts, custom: Mapping[str, str]) -> Iterator[Problem]:
    """A custom role allows the actions that the page lists, in this subscription, and no other."""
    for each in facts.deployed.resources_of_type("Microsoft.Authorization/roleDefinitions"):
        listed = custom.get(str(each.get("properties.roleName")).partition(" (")[0], "").split(", ")
        if each.get("properties.permissions") != [{"actions": listed}]:
            message = f"properties.permissions must be the actions {', '.join(listed)}"
            yield each.problem(message, "properties.permissions")
        if each.get("properties.assignableScopes") != [SUBSCRIPTION_ID]:
            message = "properties.assignableScopes must be the subscription"
            yield each.problem(message, "properties.assignableScopes")


def check(
    deployed: Deployment, declared: list[list[str]], custom: Mapping[str, str]
) -> Iterator[Problem]:
    """Exactly the page's rows are assigned: to the identity that acts, on what it acts on.

    The subscriptions that deliver events say which identity delivers where.
    """
    facts, parameters = Facts(deployed), deployed.main.arguments
    yield from _check_definitions(facts, custom)
    if parameters.get("eventDelivery") == "later":  # the same roles, whose subscriptions come later
        return
    identity = {
        f"{facts.app}#properties.principalId": "app",
        f"{facts.cluster}#properties.principalId": "cluster",
        parameters.get("deployerId"): "deployer",
    }
    for principal, subscription in facts.subscriptions.items():
        identity[f"{subscription.body['parent'].id}#identity.principalId"] = principal
    role_of = {value: key for key, value in BUILT_IN.items()}
    for each in deployed.resources_of_type("Microsoft.Authorization/roleDefinitions"):
        role_of[each.name] = str(each.get("properties.roleName")).partition(" (")[0]
    scope_of = {value: key for key, value in scopes(facts).items()}
    counts = {
        "always",
        parameters.get("network"),
        parameters.get("durableBackend"),
        parameters.get("quotaReading"),
    }
    missing = {
        (who, role, scope)
        for who, scope, role, when, *_ in declared
        if when in counts and (who != "deployer" or parameters.get("deployerId"))
    }
    for each in deployed.resources_of_type(ASSIGNMENT):
        who = identity.get(str(each.get("properties.principalId")))
        role = role_of.get(str(each.get("properties.roleDefinitionId")).rpartition("/")[2], "")
        scope, reason = scope_of.get(each.scope), each.get("properties.description")
        kind = parameters.get("deployerType") if who == "deployer" else "ServicePrincipal"
        if who is None:
            yield each.problem(
                f"the principal of {reason!r} is not the identity of any part of the app",
                "properties.principalId",
            )
        elif scope is None:
            yield each.problem(
                f"{role} of {who} must be on what {TABLE} names, not on {each.scope}", "scope"
            )
        elif (who, role, scope) not in missing:
            yield each.problem(
                f"{who} gets {role} on {scope}, which {PAGE} does not list {deployed.words}"
            )
        elif each.get("properties.principalType") != kind:
            yield each.problem(
                f"principalType of {who} must be {kind!r}", "properties.principalType"
            )
        missing.discard((str(who), role, str(scope)))
    for who, role, scope in sorted(missing):
        file, line = _assigns(deployed, scope)
        yield Problem(
            file,
            line,
            f"{role} on {scope}, which {PAGE} lists for {who}, is not assigned {deployed.words}",
        )


def _assigns(deployed: Deployment, scope: str) -> tuple[str, int]:
    """Where the rows of a scope are filtered."""
    for file in deployed.files.values():
        found = (file.root.text or b"").partition(f"row.scope == '{scope}'".encode())
        if found[1]:
            return file.path.name, found[0].count(b"\n") + 1
    return MAIN, 1


def check_table(
    declared: list[tuple[int, list[str]]],
    custom: Mapping[str, str],
    table: list[tuple[int, Assignment]],
    made: list[tuple[int, CustomRole]],
) -> Iterator[Problem]:
    """roles.json has the rows of the page, no fewer, no others."""
    listed = {(who, role, scope, when): line for line, (who, scope, role, when) in declared}
    for line, row in table:
        if listed.pop((row.principal, row.role, row.scope, row.when), None) is None:
            what = f"{row.principal}: {row.role} on {row.scope} ({row.when})"
            yield Problem(TABLE, line, f"{what} is not listed in {PAGE}")
    for (who, role, scope, when), line in listed.items():
        what = f"{who}: {role} on {scope} ({when})"
        yield Problem(TABLE, 1, f"{PAGE}:{line} lists {what}, which is no row here")
    for line, role in made:
        if ", ".join(role.actions) != custom.get(role.role):
            words = f"{role.role} may {', '.join(role.actions)}"
            yield Problem(TABLE, line, f"{words}, {PAGE} says {custom.get(role.role)}")
