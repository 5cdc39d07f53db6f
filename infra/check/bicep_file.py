"""A Bicep file, parsed by tree-sitter: its declarations, without checks.

Grammar: https://github.com/tree-sitter-grammars/tree-sitter-bicep
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Self

import tree_sitter_bicep
from tree_sitter import Language, Node, Parser

from infra.check.problem import Problem


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
        for node in file.root.named_children:
            parts = [each for each in node.named_children if each.type != "comment"]
            match node.type:
                case "parameter_declaration":
                    name = text(parts[0])
                    default = parts[2] if len(parts) > 2 else None  # noqa: PLR2004 - name, type, default
                    file.parameters[name] = Parameter(name, text(parts[1]), default, node)
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
        return file

    @cached_property
    def nodes(self) -> list[Node]:
        """Every node in order, as `walk` returns them."""
        return list(walk(self.root))

    @cached_property
    def symbols(self) -> set[str]:
        """Every name that an expression may refer to."""
        declared = [*self.resources, *self.modules]
        return {each.symbol for each in declared} | self.parameters.keys() | self.variables.keys()

    def problem(self, node: Node, message: str) -> Problem:
        """A finding at a node."""
        return Problem(self.path.name, node.start_point[0] + 1, message)

    def syntax_errors(self) -> Iterator[Node]:
        """Return the nodes that are not valid Bicep, or are incomplete."""
        if self.root.has_error:
            for node in walk(self.root, tokens=True):
                if node.type == "ERROR" or node.is_missing:
                    yield node


@cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bicep.language()))


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
