"""Names: what an expression refers to is declared, modules get what they ask for and no more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tree_sitter import Node

from infra.check.bicep_file import BicepFile, Module, properties, string, text, walk
from infra.check.problem import Problem

# Functions that are called by name are no references, except these, which hold others.
NAMESPACES = frozenset({"az", "sys"})
KEY_FUNCTIONS = ("listKeys", "listAccountSas", "listServiceSas", "listSecrets", "listCredentials")


def check(file: BicepFile, files: Mapping[str, BicepFile]) -> Iterator[Problem]:
    """References resolve; parameters, outputs and modules fit; nothing is declared in vain."""
    used: set[str] = set()
    for declaration in file.root.named_children:
        nodes = list(walk(declaration))
        known = file.symbols | _local_names(nodes) | NAMESPACES
        for node in nodes:
            if node.type == "identifier" and _is_reference(node):
                name = text(node)
                used.add(name)
                if name not in known:
                    yield file.problem(node, f"{name} is not declared")
    for name, parameter in file.parameters.items():
        if name not in used:
            yield file.problem(parameter.node, f"parameter {name} is not used")
    for name, value in file.variables.items():
        if name not in used:
            yield file.problem(value, f"variable {name} is not used")
    for module in file.modules:
        yield from _check_module(file, module, files)
    yield from _check_outputs(file, files)
    yield from _check_expressions(file)


def _check_expressions(file: BicepFile) -> Iterator[Problem]:
    """No key is read; what is compared with texts says which there are, and is one of them."""
    for node in file.nodes:
        called = text(node.named_children[0]) if node.type == "call_expression" else ""
        if called.rpartition(".")[2] in KEY_FUNCTIONS:
            yield file.problem(node, f"{called}: no key is ever read, use an identity")
        if node.type != "binary_expression" or text(node.children[1]) not in {"==", "!="}:
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


def _check_module(
    file: BicepFile, module: Module, files: Mapping[str, BicepFile]
) -> Iterator[Problem]:
    target = files.get(module.path)
    if target is None:
        yield file.problem(module.node, f"module {module.symbol}: there is no file {module.path}")
        return
    given = module_parameters(module)
    for name, value in given.items():
        if name not in target.parameters:
            yield file.problem(
                value, f"module {module.symbol}: {module.path} has no parameter {name}"
            )
        if name in target.parameters:
            inner, outer = target.parameters[name], file.parameters.get(text(value))
            if outer is not None and ("secure" in inner.limits) != ("secure" in outer.limits):
                message = f"module {module.symbol}: {name} is @secure() on one side only"
                yield file.problem(value, message)
    for name, parameter in target.parameters.items():
        if parameter.default is None and name not in given:
            yield file.problem(module.node, f"module {module.symbol}: parameter {name} is missing")


def _check_outputs(file: BicepFile, files: Mapping[str, BicepFile]) -> Iterator[Problem]:
    targets = {f"{each.symbol}.outputs": files.get(each.path) for each in file.modules}
    for node in file.nodes:
        if node.type != "member_expression":
            continue
        owner, member = node.named_children[0], node.named_children[-1]
        target = targets.get(text(owner).replace("!", ""))
        if target is not None and text(member) not in target.outputs:
            yield file.problem(node, f"{target.path.name} has no output {text(member)}")


def module_parameters(module: Module) -> dict[str, Node]:
    """Name and value of what a module is given."""
    if module.body is None:
        return {}
    for key, value, _ in properties(module.body):
        if key == "params" and value.type == "object":
            return {name: each for name, each, _ in properties(value)}
    return {}


def _local_names(declaration: Iterable[Node]) -> set[str]:
    """Variables of loops and parameters of lambdas, anywhere in the declaration."""
    found: set[str] = set()
    for node in declaration:
        if node.type in {"loop_variable", "loop_enumerator"}:
            found.add(text(node))
        elif node.type == "for_statement" and node.named_children[0].type == "identifier":
            found.add(text(node.named_children[0]))
        elif node.type == "lambda_expression":
            found |= {
                text(each) for each in walk(node.named_children[0]) if each.type == "identifier"
            }
    return found


def _is_reference(node: Node) -> bool:
    parent = node.parent
    assert parent is not None, "a file is not an identifier"
    match parent.type:
        case (
            "call_expression"
            | "object_property"
            | "parameter_declaration"
            | "variable_declaration"
            | "resource_declaration"
            | "module_declaration"
            | "output_declaration"
            | "type_declaration"
        ):
            return parent.named_children[0].id != node.id
        case _:
            return True
