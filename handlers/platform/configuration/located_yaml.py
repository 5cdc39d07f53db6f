"""YAML files whose errors name file, line, key and value.

Each key is there once and each number is finite: YAML itself lets the last of two equal keys win,
and no comparison with a NaN is true, so a gate with such a floor would refuse nothing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml
from pydantic import BaseModel, ValidationError

from orchestrations.errors import PermanentError

Location = tuple[int | str, ...]
Model = TypeVar("Model", bound=BaseModel)
_FLOAT = "tag:yaml.org,2002:float"
# The keys `<<` and `=`, which only the constructor of a mapping knows.
_OF_MAPPINGS = frozenset({"tag:yaml.org,2002:merge", "tag:yaml.org,2002:value"})


def read_text(file: Path, *, invalid: type[PermanentError]) -> str:
    """The text of a file.

    Raises:
        PermanentError: of type `invalid`: it cannot be read, or is not UTF-8; names the file.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise invalid(f"{file}: cannot be read: {error.strerror}") from error
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise invalid(f"{file}:{line}: not UTF-8: {error.reason}") from error


@dataclass(frozen=True)
class LocatedYaml:
    """A mapping from a YAML file, with line numbers."""

    file: Path
    node: yaml.Node | None
    document: dict[str, Any]
    invalid: type[PermanentError]
    """The type of the error for an invalid file."""

    @classmethod
    @functools.lru_cache(maxsize=64)  # each request for nodes reads queues.yml, which takes 10 ms
    def parse(
        cls, file: Path, text: str, *, shape: str, invalid: type[PermanentError]
    ) -> LocatedYaml:
        """Parse a file's text; `shape` is the message if it is not a mapping.

        Raises:
            PermanentError: of type `invalid`: it is not a YAML mapping, a key is there twice, or a
                number is not finite; names file and line.
        """
        try:
            node, document = yaml.compose(text, Loader=yaml.SafeLoader), yaml.safe_load(text)
        # PyYAML lets some values through to Python's own parsers, such as 2026-13-45.
        except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
            raise invalid(f"{file}: no valid YAML: {error}") from error
        if not isinstance(document, dict):
            raise invalid(f"{file}:1: {shape}")
        problems = [
            f"{file}:{at.start_mark.line + 1}: {'.'.join(map(str, location))}: {problem} "
            f"(value: {_shown(value)!r})"
            for at, location, problem, value in _problems(node, (), set())
        ]
        if problems:
            raise invalid("\n".join(problems))
        return cls(file, node, cast("dict[str, Any]", document), invalid)

    def validate(self, model: type[Model], **more: Any) -> Model:
        """Validate the document, with additional keys, as a model.

        Raises:
            PermanentError: of type `invalid`; a line per error: file, line, key, error, value.
        """
        try:
            return model.model_validate({**self.document, **more})
        except ValidationError as error:
            problems = (self._describe(problem) for problem in error.errors())
            raise self.invalid("\n".join(problems)) from error

    def problem(self, location: Location, problem: str) -> str:
        """The message for a problem with the key at a location."""
        return f"{self.file}:{self.line(location)}: {'.'.join(map(str, location))}: {problem}"

    def line(self, location: Location) -> int:
        """The line (from 1) of the deepest existing key or item on the path `location`."""
        line, node = 1, self.node
        for part in location:
            child = _child(node, part)
            if child is None:
                break
            named, node = child
            line = named.start_mark.line + 1
        return line

    def _drop_tags(self, problem: Mapping[str, Any]) -> Location:
        """The keys of a problem's location, without the tags of unions, which are not keys."""
        location = cast("Location", problem["loc"])
        node, keys = self.node, list[int | str]()
        for number, part in enumerate(location, start=1):
            child = _child(node, part)
            if child is not None:
                node = child[1]
            if child is not None or (number == len(location) and problem["type"] == "missing"):
                keys.append(part)
        return tuple(keys)

    def _describe(self, problem: Mapping[str, Any]) -> str:
        location = self._drop_tags(problem)
        # A problem of the whole file needs no value: that would be the file.
        unsaid = problem["type"] == "missing" or not location
        value = "" if unsaid else f" (value: {problem['input']!r})"
        return self.problem(location, f"{problem['msg']}{value}")


def _child(node: yaml.Node | None, part: int | str) -> tuple[yaml.Node, yaml.Node] | None:
    """The node of a key (or the item itself), and the node of its value."""
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == part), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    return None


def _problems(
    node: yaml.Node | None, location: Location, seen: set[int]
) -> Iterator[tuple[yaml.Node, Location, str, yaml.Node]]:
    """Where a problem is (node and keys), the problem, and the node of the value."""
    if node is None or id(node) in seen:  # an alias repeats a node, and may contain itself
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        lines: dict[Any, int] = {}
        for key, value in node.value:
            there, name = (*location, key.value), _constructed(key)
            if name in lines:
                yield key, there, f"is there twice, first in line {lines[name]}", value
            lines.setdefault(name, key.start_mark.line + 1)
            yield from _problems(key, location, seen)
            yield from _problems(value, there, seen)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _problems(item, (*location, number), seen)
    elif node.tag == _FLOAT and not math.isfinite(_constructed(node)):
        yield node, location, "a number is finite", node


def _constructed(node: yaml.Node) -> Any:
    """The value of a scalar: `a` and `"a"` are one key."""
    if node.tag in _OF_MAPPINGS:
        return node.value
    return yaml.constructor.SafeConstructor().construct_object(node, deep=True)


def _shown(node: yaml.Node) -> str:
    return node.value if isinstance(node, yaml.ScalarNode) else "…"
