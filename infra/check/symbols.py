"""What is declared in vain, keys that are read, and texts that no parameter has."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from infra.check.bicep_file import BicepFile, Module, properties, string, text
from infra.check.problem import Problem

KEY_FUNCTIONS = ("listKeys", "listAccountSas", "listServiceSas", "listSecrets", "listCredentials")


def check(file: BicepFile) -> Iterator[Problem]:
    """Every parameter and variable is used; expressions read no key and compare what can be."""
    for name, parameter in file.parameters.items():
        if name not in file.used:
            yield file.problem(parameter.node, f"parameter {name} is not used")
    for name, value in file.variables.items():
        if name not in file.used:
            yield file.problem(value, f"variable {name} is not used")
    yield from _check_expressions(file)


def _check_expressions(file: BicepFile) -> Iterator[Problem]:
    for node in file.nodes["call_expression"]:
        called = text(node.named_children[0])
        if called.rpartition(".")[2] in KEY_FUNCTIONS:
            yield file.problem(node, f"{called}: no key is ever read, use an identity")
    for node in file.nodes["binary_expression"]:
        if text(node.children[1]) not in {"==", "!="}:
            continue
        names = [each for each in node.named_children if text(each) in file.parameters]
        texts = [string(each) for each in node.named_children if each.type == "string"]
        if names and texts and texts != [""]:
            allowed = file.parameters[text(names[0])].limits.get("allowed")
            if allowed is None:
                message = f"{text(names[0])} is compared with texts, so it needs @allowed"
                yield file.problem(file.parameters[text(names[0])].node, message)
            elif texts[0] not in allowed:
                yield file.problem(node, f"{text(names[0])} is never {texts[0]!r}")


def module_parameters(module: Module) -> dict[str, Node]:
    """Name and value of what a module is given."""
    if module.body is None:
        return {}
    for key, value, _ in properties(module.body):
        if key == "params" and value.type == "object":
            return {name: each for name, each, _ in properties(value)}
    return {}
