"""The value of an expression, as far as a file alone decides it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tree_sitter import Node

from infra.check.bicep_file import BicepFile, properties, string, text

UNKNOWN: Final = object()
"""Only Azure or a parameter decides it."""


def evaluate(  # noqa: PLR0911 - one for each kind of expression
    node: Node, file: BicepFile, given: Mapping[str, Any] | None = None
) -> Any:
    """Evaluate literals, arrays, objects, interpolations and references to variables.

    Args:
        node: the expression.
        file: where its variables and parameters are declared.
        given: values of parameters; others are UNKNOWN, whatever their default is.
    """
    given = given or {}
    match node.type:
        case "string":
            return _string(node, file, given)
        case "number":
            return int(text(node))
        case "boolean":
            return text(node) == "true"
        case "null":
            return None
        case "array":
            parts = (each for each in node.named_children if each.type != "comment")
            return [evaluate(each, file, given) for each in parts]
        case "object":
            return {key: evaluate(value, file, given) for key, value, _ in properties(node)}
        case "identifier":
            name = text(node)
            if name in given:
                return given[name]
            if name in file.variables:
                return evaluate(file.variables[name], file, given)
            return UNKNOWN
        case _:
            return UNKNOWN


def _string(node: Node, file: BicepFile, given: Mapping[str, Any]) -> Any:
    if not any(each.type == "interpolation" for each in node.named_children):
        return string(node)
    found = ""
    for part in node.named_children:
        if part.type == "interpolation":
            value = evaluate(part.named_children[0], file, given)
            if not isinstance(value, str):
                return UNKNOWN
            found += value
        else:
            found += text(part)
    return found
