"""The laptop and Azure have the same queues, topics, filters, containers and datastores."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tree_sitter import Node

from infra.check.bicep_file import BicepFile, Module, properties, string, text
from infra.check.expressions import UNKNOWN, evaluate
from infra.check.problem import Problem
from infra.check.symbols import module_parameters

PACKAGE_CONTAINER = "app-package"  # Azure's own: the laptop runs the folder
KEY_VAULT = "key-vault"  # a topic of its own on the laptop, which has no vault that publishes to it
SOURCES = {"dataEvents": "storage", "jobEvents": "azure-ml", "vaultEvents": KEY_VAULT}
MAIN = "main.bicep"
BUS = "Microsoft.ServiceBus/namespaces"
ACCOUNT = "Microsoft.Storage/storageAccounts"


def check(root: Path, files: Mapping[str, BicepFile]) -> Iterator[Problem]:
    """Compare `infra/*.bicep`, by file name, with `infra/local/*.json`."""
    local = root / "infra" / "local"

    def laptop(name: str) -> Any:
        return json.loads((local / name).read_text("utf-8"))

    entities = laptop_entities(laptop("Config.json"))
    yield from _compare("service-bus.bicep", bus_entities(files), entities)
    events = laptop("event-grid.json")
    yield from _compare(MAIN, event_subscriptions(files), laptop_subscriptions(events))
    schemas = {each["inputSchema"] for each in events["topics"] if each["name"] != KEY_VAULT}
    yield from _compare(
        "event-grid-topic.bicep", {"custom topic": topic_schemas(files)}, {"custom topic": schemas}
    )
    uses = laptop_accounts(laptop("storage.json"), laptop("scopes.json"))
    yield from _compare(MAIN, accounts(files), uses)
    contents = next(each for each in files[MAIN].modules if each.symbol == "workspaceContents")
    datastores = evaluate(module_parameters(contents)["datastores"], files[MAIN])
    yield from _compare(
        MAIN,
        {"datastores": _containers_by_datastore(datastores)},
        {"datastores": _containers_by_datastore(laptop("azure-ml.json")["datastores"])},
    )


def accounts(files: Mapping[str, BicepFile]) -> dict[str, Any]:
    """Use of an account -> its kind and containers, of the Bicep files."""
    main = files[MAIN]
    modules = {each.symbol: module_parameters(each) for each in main.modules}

    def kind(file: str) -> Any:
        (account,) = (
            each
            for each in files[file].resources
            if each.type == ACCOUNT and not each.existing and each.body is not None
        )
        return evaluate(_property(account.body, "kind"), files[file])

    def containers(module: str) -> list[str]:
        return sorted(set(evaluate(modules[module]["containers"], main)) - {PACKAGE_CONTAINER})

    return {
        "account of the app": (kind("app-storage.bicep"), containers("appStorage")),
        "account of data": (kind("data-storage.bicep"), containers("dataContainers")),
        "account of the workspace": (kind("workspace.bicep"), []),
    }


def laptop_accounts(config: Any, scopes: Any) -> dict[str, Any]:
    """Use of an account -> its kind and containers, of storage.json."""
    by_name = {each["name"]: each for each in config["accounts"]}
    uses = {"appAccount": "the app", "landing": "data", "workspaceAccount": "the workspace"}
    accounts: dict[str, Any] = {}
    for scope, use in uses.items():
        account = by_name.get(scopes["scopes"][scope].split("/")[1], {})
        accounts[f"account of {use}"] = (account.get("kind"), sorted(account.get("containers", [])))
    return accounts


def _containers_by_datastore(datastores: Any) -> dict[str, str]:
    return {each["name"]: each["containerName"] for each in datastores}


def topic_schemas(files: Mapping[str, BicepFile]) -> set[Any]:
    """The input schema of each custom topic of event-grid-topic.bicep."""
    file = files["event-grid-topic.bicep"]
    return {
        evaluate(_property(each.body, "properties.inputSchema"), file)
        for each in file.resources
        if each.type == "Microsoft.EventGrid/topics" and each.body is not None
    }


def _compare(file: str, azure: Mapping[str, Any], laptop: Mapping[str, Any]) -> Iterator[Problem]:
    for name in sorted(azure.keys() | laptop.keys()):
        if name not in azure:
            yield Problem(file, 1, f"{name} is on the laptop, but not here")
        elif name not in laptop:
            yield Problem(file, 1, f"{name} is not on the laptop: see infra/local")
        elif azure[name] != laptop[name]:
            yield Problem(file, 1, f"{name}: {azure[name]} here, {laptop[name]} on the laptop")


def laptop_entities(config: Any) -> dict[str, Any]:
    """Path -> properties, of the format of Microsoft's Service Bus emulator."""
    (namespace,) = config["UserConfig"]["Namespaces"]
    entities: dict[str, Any] = {each["Name"]: each["Properties"] for each in namespace["Queues"]}
    for topic in namespace["Topics"]:
        entities[topic["Name"]] = topic["Properties"]
        for subscription in topic["Subscriptions"]:
            entities[f"{topic['Name']}/{subscription['Name']}"] = subscription["Properties"]
    return {path: {k.lower(): v for k, v in each.items()} for path, each in entities.items()}


def bus_entities(files: Mapping[str, BicepFile]) -> dict[str, Any]:
    """Path -> properties, of what service-bus.bicep declares."""
    file = files["service-bus.bicep"]
    bodies = {each.symbol: evaluate(each.body, file) for each in file.resources if each.body}
    parents = {
        each.symbol: text(_property(each.body, "parent"))
        for each in file.resources
        if each.body is not None and each.type != BUS
    }
    entities: dict[str, Any] = {}
    for each in file.resources:
        if each.type in {f"{BUS}/queues", f"{BUS}/topics"}:
            path = bodies[each.symbol]["name"]
        elif each.type == f"{BUS}/topics/subscriptions":
            path = f"{bodies[parents[each.symbol]]['name']}/{bodies[each.symbol]['name']}"
        else:
            continue
        entities[path] = {k.lower(): v for k, v in bodies[each.symbol]["properties"].items()}
    return entities


def laptop_subscriptions(config: Any) -> dict[str, Any]:
    """Name -> what event-grid.json says of it."""
    subscriptions: dict[str, Any] = {}
    for each in config["eventSubscriptions"]:
        delivery = each["properties"].get("deliveryWithResourceIdentity", each["properties"])
        subscriptions[each["name"]] = {
            "source": each["topic"],
            "queue": delivery["destination"]["properties"]["resourceId"].rpartition("/")[2],
            **_delivery(each["properties"]),
        }
    return subscriptions


def event_subscriptions(files: Mapping[str, BicepFile]) -> dict[str, Any]:
    """Name -> what the modules in main.bicep and event-subscription.bicep say of it."""
    main, target = files[MAIN], files["event-subscription.bicep"]
    (resource,) = (each for each in target.resources if not each.existing)
    assert resource.body is not None, "a subscription has properties"
    subscriptions: dict[str, Any] = {}
    for module in main.modules:
        if module.path != target.path.name:
            continue
        nodes = module_parameters(module)
        arguments = {name: evaluate(node, main) for name, node in nodes.items()}
        subscriptions[arguments["subscriptionName"]] = {
            "source": SOURCES.get(text(nodes["topicName"]).partition(".")[0]),
            "queue": _queue(files, main, nodes["queueId"]),
            **_delivery(evaluate(resource.body, target, arguments)["properties"]),
        }
    return subscriptions


def _delivery(subscription: Mapping[str, Any]) -> dict[str, Any]:
    """Properties of a subscription that both files write in the same form."""
    delivery = subscription.get("deliveryWithResourceIdentity", subscription)
    by_identity = subscription.get("deadLetterWithResourceIdentity", subscription)
    dead_letters = by_identity.get("deadLetterDestination", {}).get("properties", {})
    return {
        "identities": [delivery.get("identity"), by_identity.get("identity")],
        "schema": subscription["eventDeliverySchema"],
        "filter": {key: value for key, value in subscription["filter"].items() if value != ""},
        "retry": subscription["retryPolicy"],
        "dead letters": dead_letters.get("blobContainerName"),
    }


def _queue(files: Mapping[str, BicepFile], main: BicepFile, node: Node) -> Any:
    """The queue behind `<module>.outputs.<output>`, whose output is `<resource>.id`."""
    module, _, output = text(node).partition(".outputs.")
    target: Module | None = next((each for each in main.modules if each.symbol == module), None)
    if target is None or target.path not in files or output not in files[target.path].outputs:
        return UNKNOWN
    file = files[target.path]
    symbol = text(file.outputs[output]).removesuffix(".id")
    for resource in file.resources:
        if resource.symbol == symbol and resource.body is not None:
            return string(_property(resource.body, "name"))
    return UNKNOWN


def _property(node: Node | None, path: str) -> Node:
    """The value at a path of an object.

    Raises:
        KeyError: there is none.
    """
    for key in path.split("."):
        values = {name: value for name, value, _ in properties(node)} if node is not None else {}
        node = values[key]
    assert node is not None, "a path has a part"
    return node
