"""The deployments that are checked: those of each choice that a person has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from infra.check import app_rules, deployed_rules, role_rules, roles
from infra.check.azd import PARAMETERS, WORKFLOW
from infra.check.bicep_file import BicepFile, Parameter, string, text
from infra.check.deployment import MAIN, Deployment, misfits
from infra.check.host_json import line_of
from infra.check.problem import Problem

REFERENCE = re.compile(r"^\$\{(\w+)(?:=([^}]*))?\}$")
ENVIRONMENT = {"AZURE_LOCATION": "westeurope", "AZURE_PRINCIPAL_ID": "deployer"}
GONE = (LookupError, TypeError, ValueError, AttributeError)
"""Errors of rules whose resource is missing; most often another problem says why."""
CHOICES: Mapping[str, Mapping[str, Any]] = {
    "network=private": {
        "network": "private",
        "redundancy": "ZRS",
        "durableBackend": "durableTaskScheduler",
        "deployerType": "ServicePrincipal",
        "alertEmail": "on-call@example.com",
        "alertWebhook": "https://example.com/alerts",
        "hoursWithoutSuccess": 24,
    },
    "network=public": {},
    "network=private and an existing account and workspace": {
        "network": "private",
        "quotaReading": "none",
        "dataAccountName": "existingdata",
        "dataTopicName": "existing-data-topic",
        "workspaceName": "existing-workspace",
        "workspaceResourceGroupName": "existing-group",
        "workspaceAccountName": "existingml",
        "workspaceRegistryName": "existingregistry",
        "workspaceTopicName": "existing-jobs-topic",
    },
}

# From the second provisioning on; azd's parameters are those of the first one.
DELIVERED = {"eventDelivery": "now"}


def check(root: Path, files: Mapping[str, BicepFile]) -> Iterator[Problem]:
    """What is wrong with what is deployed, for each of the choices."""
    text = (root / "infra" / PARAMETERS).read_text("utf-8")
    try:
        values = {name: each["value"] for name, each in json.loads(text)["parameters"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return  # azd.check_parameters says what is wrong
    main = files[MAIN].parameters
    longest = (
        main["environmentName"].limits.get("maxLength", 64) if "environmentName" in main else 1
    )
    environment = {**ENVIRONMENT, "AZURE_ENV_NAME": "e" * longest}
    parameters = {name: resolved(value, environment) for name, value in values.items()}
    for name, value in parameters.items():
        for message in misfits(main[name], value) if name in main else ():
            yield Problem(PARAMETERS, line_of(text, f"parameters.{name}"), message)
    page = (root / app_rules.PAGE).read_text("utf-8")
    rows = list(app_rules.page_rows(page, "Who may do what"))
    declared = [(line, each) for line, each in rows if len(each) == role_rules.ROLE_CELLS]
    custom = {each[0]: each[1] for _, each in rows if len(each) != role_rules.ROLE_CELLS}
    yield from role_rules.check_table(declared, custom, *roles.rows(root))
    yield from _check_versions(root, files)
    tried: set[tuple[str, str]] = set()
    for words, choice in {**CHOICES, **_further(main)}.items():
        deployed = Deployment(files, {**parameters, **DELIVERED, **choice}, f"with {words}")
        tried |= {(each.file.path.name, each.symbol) for each in deployed.everything}
        yield from deployed.problems
        for rules in (
            partial(deployed_rules.check, deployed),
            partial(app_rules.check, root, deployed),
            partial(app_rules.check_hooks, root, deployed, text),
            partial(role_rules.check, deployed, [each for _, each in declared], custom),
        ):
            try:
                yield from rules()
            except GONE as error:
                yield Problem(MAIN, 1, f"cannot be checked {deployed.words}: {error!r}")
    for name, file in files.items():
        for resource in file.resources:
            if (name, resource.symbol) not in tried:
                message = f"{resource.symbol} is deployed by no choice, so that nothing checks it"
                yield file.problem(resource.node, message)


def _further(parameters: Mapping[str, Parameter]) -> dict[str, dict[str, Any]]:
    """Allowed texts of parameters that no choice above has."""
    scenarios: dict[str, dict[str, Any]] = {}
    for name, parameter in parameters.items():
        for value in parameter.limits.get("allowed", ()):
            is_tried = any(each.get(name) == value for each in CHOICES.values())
            default = string(parameter.default) if parameter.default is not None else value
            if isinstance(value, str) and not is_tried and value != default:
                scenarios[f"{name}={value}"] = {name: value}
    return scenarios


def _check_versions(root: Path, files: Mapping[str, BicepFile]) -> Iterator[Problem]:
    """The app runs on the Python that the workflow tests it with before it deploys."""
    workflow = (root / WORKFLOW).read_text("utf-8")
    tested = re.findall(r'python-version: "?([\d.]+)', workflow)
    for file in files.values():
        for node in file.nodes["object_property"]:
            if re.match(r"runtime:\s*{", text(node)):
                found = re.search(r"\bversion:\s*'([^']*)'", text(node))
                if found is None or [found[1]] != tested:
                    message = f"runtime.version must be {tested}, which {WORKFLOW} tests"
                    yield file.problem(node, message)


def resolved(value: Any, environment: Mapping[str, str]) -> Any:
    """A parameter's value, as azd makes it of its environment."""
    match = REFERENCE.match(value) if isinstance(value, str) else None
    if match is None:
        return value
    return environment.get(match[1]) or match[2] or ""
