"""Azure's resource types as data: what each can set, in which API version; and what misfits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from infra.check.bicep_file import BicepFile
from infra.check.deployment import Deployed
from infra.check.expressions import UNKNOWN, Runtime, kind
from infra.check.problem import Problem

FOLDER = Path(__file__).parent / "schemas"
# Properties of Bicep itself, in addition to those of Azure's type.
DECORATIONS = ("parent", "scope")
PRIMITIVES = {"int", "bool", "string"}


@dataclass(frozen=True)
class ResourceType:
    """One resource type. `types[""]` is the resource's own body.

    A type is `{"properties": {name: {"type", "required", "readOnly"}}, "additional": type}` or
    `{"discriminator": property, "elements": {value: type}}`.
    """

    api_versions: tuple[str, ...]
    types: dict[str, Any]


def file_name(resource_type: str) -> str:
    """Return the file of a resource type, whose slashes are replaced."""
    return resource_type.replace("/", "_").lower() + ".json"


@cache
def find(resource_type: str) -> ResourceType | None:
    """The type, or None if there is no data on it."""
    for folder in (FOLDER, FOLDER / "by_hand"):
        path = folder / file_name(resource_type)
        if path.exists():
            document = json.loads(path.read_text("utf-8"))
            versions = document["apiVersion"]
            return ResourceType(
                tuple([versions] if isinstance(versions, str) else versions), document["types"]
            )
    return None


def check_versions(file: BicepFile) -> Iterator[Problem]:
    """There is data on each type, of the version that is used."""
    for resource in file.resources:
        schema = find(resource.type)
        if schema is None:
            message = f"no data on type {resource.type}: refresh infra/check/schemas"
        elif resource.api_version not in schema.api_versions:
            known = ", ".join(schema.api_versions)
            message = f"API version {resource.api_version} is not the pinned {known}"
        else:
            continue
        yield file.problem(resource.node, f"{resource.symbol}: {message}")


def check(deployed: Deployed) -> Iterator[Problem]:
    """Every property exists, may be set and fits its type; none that is required is missing."""
    schema = find(deployed.type)
    body = {key: value for key, value in deployed.body.items() if key not in DECORATIONS}
    for path, message in _object(schema.types, "", body, "") if schema else ():
        yield deployed.problem(message, path)


def _object(
    types: Mapping[str, Any], name: str, value: Mapping[str, Any], path: str
) -> Iterator[tuple[str, str]]:
    """Path and message of everything that is wrong in an object of a type."""
    described = types[name]
    if "discriminator" in described:
        key = described["discriminator"]
        chosen = value.get(key)
        if chosen is UNKNOWN:
            return
        if chosen not in described["elements"]:
            kinds = ", ".join(sorted(described["elements"]))
            wrong = "is missing" if chosen is None else f": {chosen!r} is none of {kinds}"
            yield f"{path}{key}", f"{path}{key}{'' if chosen else ' '}{wrong}"
            return
        described = described["elements"][chosen]
    properties, additional = described["properties"], described.get("additional")
    for key, inner in value.items():
        at, rule = f"{path}{key}", properties.get(key)
        if rule is None and additional is None:
            yield at, f"{at}: no such property"
        elif rule is not None and rule.get("readOnly"):
            yield at, f"{at}: Azure sets it, a file cannot"
        else:
            expected = additional if rule is None else rule["type"]
            yield from _value(types, str(expected), inner, at)
    for key, rule in properties.items():
        if rule.get("required") and key not in value:
            yield path.rstrip("."), f"{path}{key} is missing"


def _value(  # noqa: C901 - one branch for each kind of value
    types: Mapping[str, Any], expected: str, value: Any, at: str
) -> Iterator[tuple[str, str]]:
    """Path and message of what is wrong with a value; `A | B | string` is open for later values."""
    choices = [each for each in expected.split(" | ") if each not in PRIMITIVES]
    actual = kind(value)
    if value is None or actual == "any" or isinstance(value, Runtime) or expected == "any":
        return  # only Azure decides it, or anything passes
    if actual == "array":
        if expected.endswith("[]"):
            for number, each in enumerate(cast("list[Any]", value)):
                yield from _value(types, expected[:-2], each, f"{at}[{number}]")
        else:
            yield at, f"{at}: an array, where {expected} is expected"
    elif actual == "object":  # of a type that Microsoft's tool leaves out, anything passes
        if expected in types:
            yield from _object(types, expected, value, f"{at}.")
        elif expected in PRIMITIVES or not expected.isidentifier():
            yield at, f"{at}: an object, where {expected} is expected"
    elif actual != "string" or not choices or expected in types or expected.endswith("[]"):
        if actual not in expected.split(" | "):
            yield at, f"{at}: {value!r} is not {expected}"
    elif value not in choices and all(choices):
        yield at, f"{at}: {value!r} is none of {', '.join(choices)}"
