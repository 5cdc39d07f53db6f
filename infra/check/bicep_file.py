"""A Bicep file, parsed by tree-sitter: its declarations, without checks.

Grammar: https://github.com/tree-sitter-grammars/tree-sitter-bicep
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Self

import tree_sitter_bicep
from tree_sitter import Language, Node, Parser

from infra.check.problem import Problem

DECLARATIONS = {"object_property", "parameter_declaration", "variable_declaration"}


@dataclass(frozen=True, kw_only=True)
class _Declaration:
    symbol: str
    body: Node | None
    """The object, inside `if` and `for`; None if there is none."""
    node: Node


@dataclass(frozen=True, kw_only=True)
class Resource(_Declaration):
    """`resource <symbol> '<type>@<version>' = <value>`."""

    type: str
    api_version: str
    existing: bool


@dataclass(frozen=True, kw_only=True)
class Module(_Declaration):
    """`module <symbol> '<path>' = <value>`."""

    path: str


@dataclass(frozen=True)
class Parameter:
    """`param <name> <type> = <default>`."""

    name: str
    type: str
    default: Node | None
    node: Node
    limits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Its decorators' arguments: `allowed`, `minLength`, `maxLength`, `minValue`, `maxValue`."""


@dataclass
class BicepFile:
    """One file and what it declares, by name."""

    path: Path
    root: Node
    parameters: dict[str, Parameter] = field(default_factory=dict[str, Parameter])
    variables: dict[str, Node] = field(default_factory=dict[str, Node])
    outputs: dict[str, Node] = field(default_factory=dict[str, Node])
    resources: list[Resource] = field(default_factory=list[Resource])
    modules: list[Module] = field(default_factory=list[Module])

    @classmethod
    def read(cls, path: Path) -> Self:
        """Parse a file. What is no Bicep becomes nodes `ERROR`, see `syntax_errors`."""
        file = cls(path, _parser().parse(path.read_bytes()).root_node)
        limits: dict[str, Any] = {}
        for node in file.root.named_children:
            parts = [each for each in node.named_children if each.type != "comment"]
            match node.type:
                case "decorators":
                    limits |= _limits(node)
                    continue
                case "parameter_declaration":
                    name = text(parts[0])
                    default = parts[2] if len(parts) > 2 else None  # noqa: PLR2004 - name, type, default
                    file.parameters[name] = Parameter(name, text(parts[1]), default, node, limits)
                case "variable_declaration":
                    file.variables[text(parts[0])] = parts[1]
                case "output_declaration":
                    file.outputs[text(parts[0])] = parts[-1]
                case "resource_declaration":
                    type_name, _, version = string(parts[1]).partition("@")
                    resource = Resource(
                        symbol=text(parts[0]),
                        type=type_name,
                        api_version=version,
                        existing=any(text(each) == "existing" for each in node.children),
                        body=innermost(parts[-1]),
                        node=node,
                    )
                    file.resources.append(resource)
                case "module_declaration":
                    module = Module(
                        symbol=text(parts[0]),
                        path=string(parts[1]),
                        body=innermost(parts[-1]),
                        node=node,
                    )
                    file.modules.append(module)
                case _:
                    pass
            if node.type != "comment":
                limits = {}
        return file

    @cached_property
    def nodes(self) -> Mapping[str, list[Node]]:
        """Every node by its type, in order."""
        by_type: defaultdict[str, list[Node]] = defaultdict(list)
        for node in walk(self.root):
            by_type[node.type].append(node)
        return by_type

    @cached_property
    def used(self) -> set[str]:
        """Every name that is read, and not only declared."""
        return {text(node) for node in self.nodes["identifier"] if _is_reference(node)}

    @cached_property
    def symbols(self) -> set[str]:
        """Every name that an expression may refer to."""
        declared = [*self.resources, *self.modules]
        return {each.symbol for each in declared} | self.parameters.keys() | self.variables.keys()

    @cached_property
    def predecessors(self) -> dict[str, set[str]]:
        """Symbol of a resource or module -> those that it comes after, directly or not."""
        declared = {each.symbol: each.node for each in (*self.resources, *self.modules)}
        nodes = {**declared, **self.variables}
        direct = {
            name: {
                text(each)
                for each in walk(node)
                if each.type == "identifier" and text(each) in nodes and text(each) != name
            }
            for name, node in nodes.items()
        }
        by_symbol: dict[str, set[str]] = {}
        for symbol in declared:
            after, waiting = set[str](), list(direct[symbol])
            while waiting:
                name = waiting.pop()
                if name not in after:
                    after.add(name)
                    waiting += direct[name]
            by_symbol[symbol] = after
        return by_symbol

    def problem(self, node: Node, message: str) -> Problem:
        """A finding at a node."""
        return Problem(self.path.name, node.start_point[0] + 1, message)

    def syntax_errors(self) -> Iterator[Node]:
        """Return the nodes that are not valid Bicep, or are incomplete."""
        if self.root.has_error:
            for node in walk(self.root, tokens=True):
                if node.type == "ERROR" or node.is_missing:
                    yield node


def _limits(decorators: Node) -> dict[str, Any]:
    """What a parameter may be, of its decorators: literals only."""
    limits: dict[str, Any] = {}
    for each in walk(decorators):
        if text(each) == "secure()":
            limits["secure"] = [True]
        elif each.type == "call_expression" and each.named_children[1].named_children:
            value = each.named_children[1].named_children[0]
            literals = value.named_children if value.type == "array" else [value]
            values = [
                int(text(one)) if one.type == "number" else string(one)
                for one in literals
                if one.type in {"number", "string"}
            ]
            limits[text(each.named_children[0])] = values if value.type == "array" else values[:1]
    return {name: each if name == "allowed" else each[0] for name, each in limits.items() if each}


@cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bicep.language()))


def _is_reference(node: Node) -> bool:
    parent = node.parent
    assert parent is not None, "a file is not an identifier"
    return parent.type not in DECLARATIONS or parent.named_children[0].id != node.id


def text(node: Node) -> str:
    """The source of a node."""
    return (node.text or b"").decode()


def string(node: Node) -> str:
    """The content of a string without its quotes; interpolations stand as they are written."""
    return text(node).strip("'")


def walk(node: Node, *, tokens: bool = False) -> Iterator[Node]:
    """The node and all below it, in order; without comments, and without punctuation's `tokens`."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if each.type != "comment":
            yield each
            waiting += reversed(each.children if tokens else each.named_children)


def innermost(node: Node) -> Node | None:
    """The object within `if (…)` and `[for …: …]`; None if there is none."""
    if node.type == "object":
        return node
    for child in reversed(node.named_children):
        if child.type in {"object", "if_statement", "for_statement"}:
            return innermost(child)
    return None


def properties(node: Node) -> Iterator[tuple[str, Node, int]]:
    """Name, value and line of each property of an object."""
    for pair in node.named_children:
        if pair.type == "object_property":
            parts = [each for each in pair.named_children if each.type != "comment"]
            yield string(parts[0]), parts[-1], pair.start_point[0] + 1
