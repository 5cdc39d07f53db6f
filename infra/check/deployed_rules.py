"""The table of `azure_table` applied to what is deployed: names, values, network, order."""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from infra.check import schemas
from infra.check.azure_table import AFTER_SIBLING, KINDS, REQUIRED_WITH, ZONES, ByNetwork, Kind
from infra.check.deployment import Deployed, Deployment
from infra.check.expressions import UNKNOWN
from infra.check.problem import Problem

ENDPOINT = "Microsoft.Network/privateEndpoints"
ZONE = "Microsoft.Network/privateDnsZones"
NETWORK = "Microsoft.Network/virtualNetworks"
ASSIGNMENT = "Microsoft.Authorization/roleAssignments"
PUBLIC = "publicNetworkAccess"
DURATION = re.compile(r"(windowSize|Frequency|Duration|TimeWindow|TimeToLive|ScaleDown)$")
ISO_DURATION = r"P(?=.)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+S)?)?"
HOST = re.compile(r"^https://([a-z0-9-]+)\.")


def check(deployed: Deployment) -> Iterator[Problem]:
    """Everything that Azure, or the choice of network, does not allow."""
    for each in deployed.resources:
        kind = KINDS.get(each.type)
        if kind is None:
            yield each.problem(f"infra/check/azure_table.py says nothing of {each.type}")
            continue
        if not re.fullmatch(kind.name, each.name):
            yield each.problem(f"{each.name!r} is no name of {each.type}", "name")
        yield from _check_values(each, kind, is_private=deployed.is_private)
        yield from schemas.check(each)
    yield from _check_pairs(deployed)
    yield from _check_containers(deployed)
    yield from _check_order(deployed)
    if deployed.is_private:
        yield from _check_endpoints(deployed)
        yield from _check_zones(deployed)
        yield from _check_subnets(deployed)


def _check_values(each: Deployed, kind: Kind, *, is_private: bool) -> Iterator[Problem]:
    for path, rule in kind.body.items():
        wanted = rule
        if isinstance(rule, ByNetwork):
            wanted = rule.private if is_private else rule.public
        value = each.get(path)
        if value is UNKNOWN or wanted != value:
            said = "an expression" if value is UNKNOWN else repr(value)
            yield each.problem(f"{path} must be {wanted!r}, it is {said}", path)
    for path, linked in kind.links.items():
        if f"/providers/{linked}/" not in str(each.get(path)):
            yield each.problem(f"{path} must be the id of a {linked}", path)
    for path, value in leaves(each.body):
        if DURATION.search(path) and not re.fullmatch(ISO_DURATION, str(value)):
            yield each.problem(f"{path} must be a duration such as PT5M, it is {value!r}", path)
    if each.get(f"properties.{PUBLIC}") == "Enabled" and f"properties.{PUBLIC}" not in kind.body:
        yield each.problem(f"infra/check/azure_table.py has no rule for its {PUBLIC}")


def leaves(document: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Path and value of everything that is no object and no list."""
    if isinstance(document, dict | list):
        pairs: Any = document.items() if isinstance(document, dict) else enumerate(document)  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType] - of any type
        for key, value in pairs:
            yield from leaves(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, document


def _check_pairs(deployed: Deployment) -> Iterator[Problem]:
    seen: dict[str, Deployed] = {}
    for each in deployed.resources:
        if each.id.lower() in seen:
            yield each.problem(f"{each.name} is deployed twice", "name")
        seen[each.id.lower()] = each
    for each in deployed.resources_of_type("Microsoft.EventGrid/systemTopics"):
        provider, _, what = str(each.get("properties.topicType")).rpartition(".")
        if (
            f"/providers/{provider}/{what}/".lower()
            not in str(each.get("properties.source")).lower()
        ):
            message = f"properties.topicType {provider}.{what} is not that of its source"
            yield each.problem(message, "properties.topicType")
    for each in deployed.resources:
        child = REQUIRED_WITH.get(deployed.main.arguments["network"], {}).get(each.type)
        if child and not any(
            one.id.startswith(f"{each.id}/{child}/") for one in deployed.resources
        ):
            yield each.problem(f"{each.type}/{child} is missing {deployed.words}")


def _check_containers(deployed: Deployment) -> Iterator[Problem]:
    """Every container that a property names is made in its account, if we make the account."""
    named: list[tuple[Deployed, str, Any, Any]] = []
    for each in deployed.resources:
        package = "properties.functionAppConfig.deployment.storage.value"
        dead = "properties.deadLetterWithResourceIdentity.deadLetterDestination.properties"
        if each.get(package) is not None:
            account, _, container = str(each.get(package)).removeprefix("https://").partition("/")
            named.append((each, package, account.partition(".")[0], container))
        if each.get(dead) is not None:
            account = str(each.get(f"{dead}.resourceId")).rpartition("/")[2]
            named.append((each, dead, account, each.get(f"{dead}.blobContainerName")))
        if each.get("properties.containerName") is not None:
            account, name = each.get("properties.accountName"), "properties.containerName"
            named.append((each, name, account, each.get(name)))
    there = {
        (each.names[0], each.name)
        for each in deployed.resources
        if each.type.endswith("/blobServices/containers")
    }
    for each, path, account, container in named:
        if (account, container) not in there:
            message = f"account {account} has no container {container} {deployed.words}"
            yield each.problem(message, path)


def _check_endpoints(deployed: Deployment) -> Iterator[Problem]:
    """Each part that is used has a private endpoint, with all zones that resolve it."""
    groups = {
        each.scope + "/" + each.names[0]: each
        for each in deployed.resources_of_type(f"{ENDPOINT}/privateDnsZoneGroups")
    }
    reached: set[tuple[str, str]] = set()
    for each in deployed.resources_of_type(ENDPOINT):
        group = groups.get(each.scope + "/" + each.names[0])
        configs: list[Any] = (
            group.get("properties.privateDnsZoneConfigs") if group else None
        ) or []
        zones = {str(one["properties"]["privateDnsZoneId"]).rpartition("/")[2] for one in configs}
        for connection in each.get("properties.privateLinkServiceConnections"):
            service = connection["properties"]["privateLinkServiceId"]
            (part,) = connection["properties"]["groupIds"]
            target = deployed.made.get(service)
            if target is None:
                yield each.problem(f"{each.name} leads to nothing that is deployed")
                continue
            parts = KINDS.get(target.type, Kind()).parts
            if part not in parts:
                yield each.problem(f"{target.type} has no part {part} for {each.name}")
                continue
            reached.add((target.id, part))
            for zone in set(parts[part]) - zones:
                yield each.problem(f"{each.name} needs the zone {zone}, it has {sorted(zones)}")
            for zone in zones - set(parts[part]):
                yield each.problem(f"{each.name} must not use the zone {zone}")
    for each in deployed.resources:
        for part in sorted(_used_parts(deployed, each)):
            if (each.id, part) not in reached:
                yield each.problem(f"no private endpoint for its part {part} {deployed.words}")


def _used_parts(deployed: Deployment, each: Deployed) -> set[str]:
    """Parts of a resource that somebody uses; an account's are those in settings and workspaces."""
    if each.type != "Microsoft.Storage/storageAccounts":
        return set(KINDS[each.type].parts) if each.type in KINDS else set()
    parts: set[str] = set()
    for config in deployed.resources_of_type("Microsoft.Web/sites/config"):
        text = " ".join(map(str, config.body["properties"].values()))
        parts |= set(re.findall(rf"https://{each.name}\.(\w+)\.", text))
    for workspace in deployed.resources_of_type("Microsoft.MachineLearningServices/workspaces"):
        if workspace.get("properties.storageAccount") == each.id:
            parts |= {"blob", "file"}
    return parts


def _check_zones(deployed: Deployment) -> Iterator[Problem]:
    networks = {each.id for each in deployed.resources_of_type(NETWORK)}
    links = {
        link.names[0]
        for link in deployed.resources_of_type(f"{ZONE}/virtualNetworkLinks")
        if link.get("properties.virtualNetwork.id") in networks
    }
    used = {
        str(config["properties"]["privateDnsZoneId"])
        for group in deployed.resources_of_type(f"{ENDPOINT}/privateDnsZoneGroups")
        for config in group.get("properties.privateDnsZoneConfigs") or []
    }
    for each in deployed.resources_of_type(ZONE):
        if each.name not in ZONES:
            yield each.problem(f"{each.name} is no zone of private link", "name")
        if each.name not in links:
            yield each.problem(f"{each.name} is linked to no network")
        if each.id not in used and used and deployed.words.endswith("network=private"):
            yield each.problem(f"no private endpoint uses the zone {each.name}")
    for zone in sorted(used - {each.id for each in deployed.resources_of_type(ZONE)}):
        group = deployed.resources_of_type(f"{ENDPOINT}/privateDnsZoneGroups")[0]
        yield group.problem(f"there is no zone {zone.rpartition('/')[2]}")


def _check_subnets(deployed: Deployment) -> Iterator[Problem]:
    subnets: dict[str, Mapping[str, Any]] = {}
    for network in deployed.resources_of_type(NETWORK):
        listed = network.get("properties.subnets")
        subnets |= {f"{network.id}/subnets/{each['name']}": each["properties"] for each in listed}
        for message in _wrong_ranges(
            network.get("properties.addressSpace.addressPrefixes"), listed
        ):
            yield network.problem(message, "properties.subnets")
    for each in deployed.resources:
        kind = KINDS.get(each.type, Kind())
        if not kind.subnet:
            continue
        values = subnets.get(each.get(kind.subnet))
        if values is None:
            message = f"{kind.subnet} is no subnet of the network {deployed.words}"
            yield each.problem(message, kind.subnet)
            continue
        delegated = [one["properties"]["serviceName"] for one in values.get("delegations", [])]
        if delegated != ([kind.delegation] if kind.delegation else []):
            wanted = f"delegated to {kind.delegation or 'nothing'}"
            yield each.problem(f"its subnet must be {wanted}, not to {delegated}", kind.subnet)
        if kind.calls_out and values.get("natGateway", {}).get("id") not in deployed.made:
            message = "its subnet has no NAT gateway, and new networks have no other way out"
            yield each.problem(message, kind.subnet)


def _wrong_ranges(network: list[str], subnets: list[Mapping[str, Any]]) -> Iterator[str]:
    inside = [ipaddress.ip_network(each) for each in network]
    ranges: dict[str, Any] = {}
    for subnet in subnets:
        name, prefix = subnet["name"], subnet["properties"].get("addressPrefix", "")
        if not re.fullmatch(r"[A-Za-z0-9]([\w.-]{0,78}\w)?", name):
            yield f"{name!r} is no name of a subnet"
        try:
            ranges[name] = ipaddress.ip_network(prefix)
        except ValueError as error:
            yield f"{name}: {error}"
            continue
        if not any(ranges[name].subnet_of(each) for each in inside):
            yield f"subnet {name} ({prefix}) is not within the network"
    for (one, first), (two, second) in itertools.combinations(ranges.items(), 2):
        if first.overlaps(second):
            yield f"subnet {one} overlaps {two}"


def _check_order(deployed: Deployment) -> Iterator[Problem]:
    """What names a resource without its symbol must depend on what makes it."""
    by_name = {each.name: each for each in deployed.resources if KINDS.get(each.type, Kind()).parts}
    seen: set[tuple[str, str, str]] = set()
    for each in deployed.resources:
        for other, why in itertools.chain(
            _mentioned(deployed, each, by_name), _needed_before(deployed, each)
        ):
            pairs = zip(each.path, other.path, strict=False)
            at = next((n for n, (one, two) in enumerate(pairs) if one != two), None)
            if at is None:
                continue
            file = each.file if at == len(each.path) - 1 and at else deployed.files["main.bicep"]
            one, two = each.path[at], other.path[at]
            key = (file.path.name, one, two)
            if key in seen or two in file.predecessors.get(one, set()):
                continue
            seen.add(key)
            nodes = {d.symbol: d.node for d in (*file.resources, *file.modules)}
            yield file.problem(nodes[one], f"{one} must depend on {two}: {why}")


def _mentioned(
    deployed: Deployment, each: Deployed, by_name: Mapping[str, Deployed]
) -> Iterator[tuple[Deployed, str]]:
    waiting: list[Any] = [each.id, each.scope, *each.body.values()]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, Deployed):
            waiting.append(value.id)
        elif isinstance(value, str):
            host = HOST.match(value)
            for name in (value, host[1] if host else ""):
                other = by_name.get(name)
                if other is not None and other is not each:
                    yield other, f"it names {other.name}"
            path = value.partition("#")[0]
            while path.startswith("/subscriptions/"):
                other = deployed.made.get(path)
                if other is not None and other is not each:
                    yield other, f"it refers to {other.name}"
                path = path.rpartition("/")[0]


def _needed_before(deployed: Deployment, each: Deployed) -> Iterator[tuple[Deployed, str]]:
    kind, sibling = KINDS.get(each.type, Kind()), AFTER_SIBLING.get(each.type)
    if not kind.identity and not sibling:
        return
    principals: set[str] = set()
    if kind.identity == "parent":
        principals = {f"{each.body['parent'].id}#identity.principalId"}
    elif kind.identity:
        principals = {f"{one}#properties.principalId" for one in each.get(kind.identity) or {}}
    for other in deployed.resources:
        if other.type == ASSIGNMENT and other.get("properties.principalId") in principals:
            yield other, f"it acts by {other.get('properties.description')!r}"
        if kind.identity and kind.subnet and other.type.startswith(ENDPOINT):
            yield other, "it reaches services by private endpoints"
        if sibling and other.type.endswith(sibling) and other.names[0] == each.names[0]:
            yield other, "old versions are deleted only where versions are kept"
