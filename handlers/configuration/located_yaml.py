"""YAML files whose errors name file, line, key and value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml
from pydantic import BaseModel, ValidationError

from orchestrations.errors import PermanentError

Location = tuple[int | str, ...]
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class LocatedYaml:
    """A mapping from a YAML file, with line numbers."""

    file: Path
    node: yaml.Node | None
    document: dict[str, Any]
    invalid: type[PermanentError]
    """The type of the error for an invalid file."""

    @classmethod
    def parse(
        cls, file: Path, text: str, *, shape: str, invalid: type[PermanentError]
    ) -> LocatedYaml:
        """Parse a file's text; `shape` is the message if it is not a mapping.

        Raises:
            PermanentError: of type `invalid`: it is not a YAML mapping; names file and line.
        """
        try:
            node, document = yaml.compose(text, Loader=yaml.SafeLoader), yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise invalid(f"{file}: no valid YAML: {error}") from error
        if not isinstance(document, dict):
            raise invalid(f"{file}:1: {shape}")
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
            found = _child(node, part)
            if found is None:
                break
            named, node = found
            line = named.start_mark.line + 1
        return line

    def _without_tags(self, problem: Mapping[str, Any]) -> Location:
        """The keys of a problem's location, without the tags of unions, which are not keys."""
        location = cast("Location", problem["loc"])
        node, keys = self.node, list[int | str]()
        for number, part in enumerate(location, start=1):
            found = _child(node, part)
            if found is not None:
                node = found[1]
            if found is not None or (number == len(location) and problem["type"] == "missing"):
                keys.append(part)
        return tuple(keys)

    def _describe(self, problem: Mapping[str, Any]) -> str:
        location = self._without_tags(problem)
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
