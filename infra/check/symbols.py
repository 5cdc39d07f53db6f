"""Names: what an expression refers to is declared, modules get what they ask for and no more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tree_sitter import Node

from infra.check.bicep_file import BicepFile, Module, properties, text, walk
from infra.check.problem import Problem

# Functions that are called by name are no references, except these, which hold others.
NAMESPACES = frozenset({"az", "sys"})


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
