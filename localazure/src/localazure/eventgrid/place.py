"""A value somewhere in a JSON file, which knows its path, so that every error can name it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from localazure.errors import ConfigurationError


class EventGridConfigurationError(ConfigurationError):
    """`event-grid.json`, or a subscription put at run time, cannot be used.

    The message names file, path and value.
    """


@dataclass(frozen=True)
class Place:
    """A JSON value, the file it comes from and the way to it (`a.b[0]`, empty at the top)."""

    file: str
    path: str
    value: Any

    def error(self, text: str) -> EventGridConfigurationError:
        """The error to raise about this value; `text` says what is expected."""
        shown = json.dumps(self.value, default=str)
        where = self.path or "top level"
        return EventGridConfigurationError(f"{self.file}: {where}: {text}, found {shown[:200]}")

    def members(self, known: Iterable[str]) -> dict[str, Place]:
        """Of an object: its members, those with the value null left out.

        Raises:
            EventGridConfigurationError: no object, or a member that is not known.
        """
        if not isinstance(self.value, dict):
            raise self.error("expected an object")
        prefix = f"{self.path}." if self.path else ""
        found = {
            name: Place(self.file, prefix + name, value)
            for name, value in self.value.items()
            if value is not None
        }
        known = list(known)
        for name, place in found.items():
            if name not in known:
                raise place.error(f"this setting is not supported; known are {', '.join(known)}")
        return found

    def require(self, members: dict[str, Place], name: str) -> Place:
        """The member of that name."""
        if name not in members:
            raise self.error(f"{name!r} is missing")
        return members[name]

    def items(self) -> Iterator[Place]:
        """Of a list: its items."""
        if not isinstance(self.value, list):
            raise self.error("expected a list")
        for index, value in enumerate(self.value):
            yield Place(self.file, f"{self.path}[{index}]", value)

    def string(self) -> str:
        """A string that is not empty."""
        if not isinstance(self.value, str) or not self.value:
            raise self.error("expected a string that is not empty")
        return self.value

    def text(self) -> str:
        """A string, which may be empty."""
        return "" if self.value == "" else self.string()

    def strings(self) -> list[str]:
        """A list of strings."""
        return [item.string() for item in self.items()]

    def boolean(self) -> bool:
        """True or false."""
        if not isinstance(self.value, bool):
            raise self.error("expected true or false")
        return self.value

    def number(self) -> float:
        """A number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.error("expected a number")
        return self.value

    def integer(self, low: int, high: int) -> int:
        """A whole number within bounds, both included."""
        number = self.number()
        if not isinstance(number, int) or not low <= number <= high:
            raise self.error(f"expected a whole number from {low} to {high}")
        return number

    def one_of(self, allowed: Iterable[str]) -> str:
        """One of the allowed strings."""
        allowed = list(allowed)
        if self.value not in allowed:
            raise self.error(f"expected one of {', '.join(allowed)}")
        return self.value
