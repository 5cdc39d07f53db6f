"""azure.yaml, main.parameters.json, and whether they fit the folder, main.bicep and the pipelines.

azd's published schema allows any key anywhere. These models allow those that we use.
https://github.com/Azure/azure-dev/blob/main/schemas/v1.0/azure.yaml.json
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from infra.check.bicep_file import BicepFile
from infra.check.problem import Problem

AZURE_YAML = "azure.yaml"
PARAMETERS = "main.parameters.json"
PAGE = "docs/deploy.md"
WORKFLOW = ".github/workflows/deploy.yml"
OURS = r"`(LANDFALL_\w+|MODEL_WATCH_URL)`"
# What a pipeline does not choose: it provisions again if new roles are refused.
FIXED = {"LANDFALL_EVENT_DELIVERY": "now"}
PRIORITIES = {"low_priority": "LowPriority", "dedicated": "Dedicated"}


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Hook(_Model):
    """A hook that azd runs at an event; a Python hook gets a virtual environment of its own."""

    run: str
    kind: Literal["python"]


class Hooks(_Model):
    """The events that we use."""

    preprovision: Hook | None = None
    postprovision: Hook | None = None
    postdeploy: Hook | None = None


class ServiceHooks(_Model):
    """Those of a service."""

    prepackage: Hook | None = None


class Service(_Model):
    """The function app."""

    project: str
    host: Literal["function"]
    language: Literal["python"]
    hooks: ServiceHooks = ServiceHooks()


class Infra(_Model):
    """The folder of the Bicep files."""

    provider: Literal["bicep"]
    path: str
    module: str


class Provision(_Model):
    """A step of `azd up`."""

    azd: Literal["provision"]


class Deploy(_Model):
    """Its last step."""

    azd: Literal["deploy --all"]


class Up(_Model):
    """What `azd up` does: event subscriptions need a second provisioning."""

    steps: tuple[Provision, Provision, Deploy]


class Workflows(_Model):
    """The commands that are several."""

    up: Up


class Metadata(_Model):
    """The template's name and version."""

    template: str


class RequiredVersions(_Model):
    """The versions of azd that can deploy it."""

    azd: Annotated[str, StringConstraints(pattern=r"^>=? \d+\.\d+\.\d+$")]


class AzureYaml(_Model):
    """`azure.yaml`."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    metadata: Metadata
    requiredVersions: RequiredVersions  # noqa: N815 - as azd writes names
    infra: Infra
    services: dict[str, Service]
    workflows: Workflows
    hooks: Hooks = Hooks()


def check_azure_yaml(root: Path, files: Mapping[str, BicepFile]) -> Iterator[Problem]:
    """Check azure.yaml: it is valid, its files exist, and each service is found by a tag."""
    try:
        document = AzureYaml.model_validate(yaml.safe_load((root / AZURE_YAML).read_text("utf-8")))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        yield Problem(AZURE_YAML, 1, str(error).replace("\n", " "))
        return
    if not (root / document.infra.path / f"{document.infra.module}.bicep").is_file():
        yield Problem(AZURE_YAML, 1, f"infra: there is no {document.infra.module}.bicep")
    hooks = [document.hooks, *(each.hooks for each in document.services.values())]
    for name, hook in (pair for each in hooks for pair in each):
        if hook is None:
            yield Problem(AZURE_YAML, 1, f"hooks: nothing runs at {name}")
        elif not (root / hook.run).is_file():
            yield Problem(AZURE_YAML, 1, f"hooks: there is no file {hook.run}")
    for name, service in document.services.items():
        if not (root / service.project).is_dir():
            yield Problem(AZURE_YAML, 1, f"services.{name}: there is no folder {service.project}")
        tag = f"'azd-service-name': '{name}'"
        if not any(tag in (each.root.text or b"").decode() for each in files.values()):
            yield Problem(AZURE_YAML, 1, f"services.{name}: no resource has the tag {tag}")


def check_parameters(root: Path, main: BicepFile) -> Iterator[Problem]:
    """Parameters are those of main.bicep, each without a default is given, clusters fit."""
    try:
        parameters = json.loads((root / "infra" / PARAMETERS).read_text("utf-8"))["parameters"]
    except (OSError, ValueError, KeyError) as error:
        yield Problem(PARAMETERS, 1, f"not a parameters file: {error}")
        return
    for name in parameters.keys() - main.parameters.keys():
        yield Problem(PARAMETERS, 1, f"main.bicep has no parameter {name}")
    for name, parameter in main.parameters.items():
        if parameter.default is None and name not in parameters:
            yield Problem(PARAMETERS, 1, f"parameter {name} has no default and no value")
    yield from _check_environment(root, main)
    if "clusters" in parameters:
        yield from _check_clusters(root, parameters)


def _check_environment(root: Path, main: BicepFile) -> Iterator[Problem]:
    """Each value of azd's environment is explained, and both workflows pass it on."""
    text = (root / "infra" / PARAMETERS).read_text("utf-8")
    lines = {
        match[1]: number
        for number, line in enumerate(text.splitlines(), 1)
        if (match := re.search(r"\$\{((?!AZURE_)\w+)", line))
    }
    page = (root / PAGE).read_text("utf-8")
    rows = [each for each in page.splitlines() if each.startswith("| `")]
    given = json.loads(text)["parameters"]
    for name, parameter in main.parameters.items():
        value = str(given.get(name, {}).get("value"))
        variable = match[1] if (match := re.match(r"\$\{(\w+)", value)) else name
        row = next((each for each in rows if f"`{variable}`" in each.split(" | ")[0]), None)
        for allowed in parameter.limits.get("allowed", ()) if row else ():
            if not re.search(rf"\b{allowed}\b", str(row)):
                yield main.problem(
                    parameter.node, f"{PAGE} does not say what {name}={allowed} means"
                )
    explained = {name for row in rows for name in re.findall(OURS, row.split(" | ")[0])}
    for name in lines.keys() - explained:
        yield Problem(PARAMETERS, lines[name], f"{PAGE} does not explain {name}")
    workflow = (root / WORKFLOW).read_text("utf-8")
    for name, line in lines.items():
        value = FIXED.get(name, rf"\$\{{\{{ (vars|secrets)\.{name} \}}\}}")
        if not re.search(rf"^ +{name}: {value}$", workflow, re.MULTILINE):
            yield Problem(PARAMETERS, line, f"{WORKFLOW} does not pass {name} on")
    for name in explained - lines.keys():
        yield Problem(PARAMETERS, 1, f"{PAGE} explains {name}, which no parameter reads")


def _check_clusters(root: Path, parameters: Any) -> Iterator[Problem]:
    """Check that every cluster that a pipeline uses is deployed, with an identity."""
    clusters = {each["name"]: each for each in parameters["clusters"]["value"]}
    for file in sorted((root / "pipelines").glob("*/pipeline.yml")):
        for option in yaml.safe_load(file.read_text("utf-8"))["compute"]:
            name = f"{file.parent.name}: cluster {option['cluster']}"
            made = clusters.get(option["cluster"])
            if made is None:
                yield Problem(PARAMETERS, 1, f"{name} is not made")
                continue
            wanted = (option["size"], PRIORITIES[option.get("priority", "dedicated")])
            if (made["size"], made["priority"]) != wanted:
                yield Problem(PARAMETERS, 1, f"{name} is not {' '.join(wanted)}")
            if made["maxNodes"] < option.get("nodes", 1):
                yield Problem(PARAMETERS, 1, f"{name} has too few nodes")
