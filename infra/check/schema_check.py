"""Resources against Azure's own types: `schemas/`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tree_sitter import Node

from infra.check import schemas
from infra.check.bicep_file import BicepFile, Resource, innermost, properties, string, text
from infra.check.problem import Problem

# Properties of Bicep itself, in addition to those of Azure's type.
DECORATIONS = frozenset({"parent", "scope", "dependsOn"})
LITERALS = {"number": "int", "boolean": "bool", "string": "string"}
PRIMITIVES = {"int", "bool", "string"}


def check(file: BicepFile) -> Iterator[Problem]:
    """Every property exists, may be set and fits; versions are those of the data."""
    for resource in file.resources:
        for line, message in _check_resource(file, resource):
            yield Problem(file.path.name, line, f"{resource.symbol}: {message}")


def _check_resource(file: BicepFile, resource: Resource) -> Iterator[tuple[int, str]]:
    line = resource.node.start_point[0] + 1
    schema = schemas.find(resource.type)
    if schema is None:
        yield line, f"no data on type {resource.type}: refresh infra/check/schemas"
        return
    if resource.api_version not in schema.api_versions:
        known = ", ".join(schema.api_versions)
        yield line, f"API version {resource.api_version} is not the pinned {known}"
    if not resource.existing and resource.body is not None:
        walker = _Walker(file, schema.types)
        yield from walker.check_object(resource.body, schema.types[""], "", DECORATIONS)


class _Walker:
    def __init__(self, file: BicepFile, types: Mapping[str, Any]) -> None:
        self._file = file
        self._types = types

    def check_object(  # noqa: C901 - a rule after the other
        self,
        node: Node,
        described: Mapping[str, Any],
        path: str,
        ignored: frozenset[str] = frozenset(),
    ) -> Iterator[tuple[int, str]]:
        """Line and message of everything that is wrong in an object."""
        line = node.start_point[0] + 1
        if "discriminator" in described:
            chosen = _choose(node, described)
            if isinstance(chosen, str):
                yield line, f"{path}{chosen}"
            if not isinstance(chosen, dict):
                return
            described = chosen
        known, additional = described["properties"], described.get("additional")
        seen: set[str] = set()
        for key, value, at in properties(node):
            seen.add(key)
            if key in ignored:
                continue
            rule = known.get(key)
            if rule is None and additional is None:
                yield at, f"{path}{key}: no such property"
            elif rule is None:
                yield from self.check_value(value, str(additional), f"{path}{key}")
            elif rule.get("readOnly"):
                yield at, f"{path}{key}: Azure sets it, a file cannot"
            else:
                yield from self.check_value(value, rule["type"], f"{path}{key}")
        for key, rule in known.items():
            if rule.get("required") and key not in seen:
                yield line, f"{path}{key} is missing"

    def check_value(  # noqa: C901, PLR0912 - one branch for each kind of expression
        self, node: Node, expected: str, path: str
    ) -> Iterator[tuple[int, str]]:
        """Line and message of what is wrong with a value."""
        line = node.start_point[0] + 1
        match node.type:
            case "null":
                return
            case "ternary_expression":
                for branch in node.named_children[1:]:
                    yield from self.check_value(branch, expected, path)
            case "identifier" if text(node) in self._file.variables:
                yield from self.check_value(self._file.variables[text(node)], expected, path)
            case "identifier" if text(node) in self._file.parameters:
                declared = self._file.parameters[text(node)].type
                if expected in PRIMITIVES and declared in PRIMITIVES and declared != expected:
                    yield line, f"{path}: parameter {text(node)} is {declared}, not {expected}"
                choices = set(expected.split(" | ")) - PRIMITIVES - {"any"}
                if declared == "string" and " | " in expected and choices:
                    allowed = self._file.parameters[text(node)].limits.get("allowed")
                    if allowed is None or not set(allowed) <= choices:
                        yield line, f"{path}: parameter {text(node)} needs @allowed of {expected}"
            case "array":
                if not expected.endswith("[]"):
                    if expected != "any":
                        yield line, f"{path}: an array, where {expected} is expected"
                    return
                for number, each in enumerate(node.named_children):
                    if each.type != "comment":
                        yield from self.check_value(each, expected[:-2], f"{path}[{number}]")
            case "for_statement":
                body = innermost(node)
                if body is not None and expected.endswith("[]"):
                    yield from self.check_value(body, expected[:-2], f"{path}[]")
            case "object":  # of a type that Microsoft's tool leaves out, anything passes
                if expected in self._types:
                    yield from self.check_object(node, self._types[expected], f"{path}.")
                elif expected in PRIMITIVES or not expected.isidentifier():
                    yield line, f"{path}: an object, where {expected} is expected"
            case "string" | "number" | "boolean":
                yield from self._check_literal(node, expected, path, line)
            case _:
                return  # a function or a member: decided when it is deployed

    def _check_literal(
        self, node: Node, expected: str, path: str, line: int
    ) -> Iterator[tuple[int, str]]:
        kind = LITERALS[node.type]
        if expected in {kind, "any"}:
            return
        is_structure = expected in self._types or expected.endswith("[]")
        if kind != "string" or expected in PRIMITIVES or is_structure:
            yield line, f"{path}: {text(node)} is not {expected}"
            return
        # `A | B | string` is open for later API versions; what we write is one of today's.
        allowed = [each for each in re.split(r" \| ", expected) if each != "string"]
        if "${" not in text(node) and string(node) not in allowed:
            yield line, f"{path}: {text(node)} is none of {', '.join(allowed)}"


def _choose(node: Node, described: Mapping[str, Any]) -> dict[str, Any] | str | None:
    """The type that the discriminator chooses, or what is wrong; None if only Azure decides."""
    name = described["discriminator"]
    given = [value for key, value, _ in properties(node) if key == name]
    if not given:
        return f"{name} is missing"
    if given[0].type != "string" or "${" in text(given[0]):
        return None
    if string(given[0]) not in described["elements"]:
        kinds = ", ".join(sorted(described["elements"]))
        return f"{name}: {text(given[0])} is none of {kinds}"
    return described["elements"][string(given[0])]
