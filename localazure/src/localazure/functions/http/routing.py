"""Route templates of HTTP triggers, with the syntax and precedence of ASP.NET.

Examples: `products/{category:alpha}/{id:int?}`, `{page=home}`, `files/{*path}`. Literals ignore
case. If several routes match, the one whose first differing segment is more specific wins (literal,
constrained parameter, parameter, catch-all).

Sources: https://learn.microsoft.com/aspnet/core/fundamentals/routing#route-templates,
https://learn.microsoft.com/dotnet/api/microsoft.aspnetcore.http.pathstring
"""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Generic, TypeVar
from urllib.parse import unquote

Constraint = Callable[[str], bool]
T = TypeVar("T")

_NAME = re.compile(r"(\*{0,2})([A-Za-z_]\w*)")
# A constraint's argument may contain one level of nested parentheses.
_CONSTRAINT = re.compile(r":(\w+)(?:\(((?:[^()]|\([^()]*\))*)\))?")
# A parameter may contain the braces of a regular expression's repetition, such as `{2,4}`.
# ASP.NET requires these to be doubled.
_PARAMETER = re.compile(r"\{((?:[^{}]|\{\d+(?:,\d*)?\}|\{\{\d+(?:,\d*)?\}\})*)\}")
_ENCODED_SLASH = re.compile(r"%(2f)", re.IGNORECASE)


def _parses(parse: Callable[[str], object]) -> Constraint:
    def check(value: str) -> bool:
        try:
            parse(value)
        except ValueError:
            return False
        return True

    return check


def _whole(bits: int) -> Constraint:
    limit = 1 << (bits - 1)
    return lambda value: bool(re.fullmatch(r"[+-]?\d+", value)) and -limit <= int(value) < limit


def _plain(check: Constraint) -> Callable[[str], Constraint]:
    def make(argument: str) -> Constraint:
        if argument:
            raise ValueError("takes no argument")
        return check

    return make


def _bounded(
    measure: Callable[[str], float], *counts: int, has_least: bool = True, has_most: bool = True
) -> Callable[[str], Constraint]:
    """A constraint whose argument is a minimum, a maximum or both; `counts` are its lengths."""

    def make(argument: str) -> Constraint:
        bounds = [int(part) for part in argument.split(",")]
        if len(bounds) not in counts:
            raise ValueError(f"takes {' or '.join(map(str, counts))} numbers")
        least = bounds[0] if has_least else -math.inf
        most = bounds[-1] if has_most else math.inf
        return lambda value: least <= measure(value) <= most

    return make


def _number(value: str) -> float:
    """Parse a whole number; return NaN, which is outside all bounds, for any other text."""
    return int(value) if _whole(64)(value) else math.nan


def _regex(argument: str) -> Constraint:
    pattern = re.compile(argument.replace("{{", "{").replace("}}", "}"), re.IGNORECASE)
    return lambda value: pattern.search(value) is not None


CONSTRAINTS: Final[Mapping[str, Callable[[str], Constraint]]] = {
    "int": _plain(_whole(32)),
    "long": _plain(_whole(64)),
    "bool": _plain(lambda value: value.lower() in {"true", "false"}),
    "alpha": _plain(lambda value: value.isascii() and (value.isalpha() or not value)),
    "guid": _plain(_parses(uuid.UUID)),
    "decimal": _plain(_parses(float)),
    "double": _plain(_parses(float)),
    "float": _plain(_parses(float)),
    "datetime": _plain(_parses(datetime.fromisoformat)),
    "length": _bounded(len, 1, 2),
    "minlength": _bounded(len, 1, has_most=False),
    "maxlength": _bounded(len, 1, has_least=False),
    "min": _bounded(_number, 1, has_most=False),
    "max": _bounded(_number, 1, has_least=False),
    "range": _bounded(_number, 2),
    "regex": _regex,
    "required": _plain(bool),
}


@dataclass(frozen=True)
class _Parameter:
    name: str
    constraints: tuple[Constraint, ...]
    is_catch_all: bool
    is_optional: bool
    default: str | None

    @classmethod
    def parse(cls, text: str) -> _Parameter:
        head = _NAME.match(text)
        if head is None:
            raise ValueError(f"{{{text}}} has no name")
        constraints: list[Constraint] = []
        end = head.end()
        while hit := _CONSTRAINT.match(text, end):
            name, argument = hit[1], hit[2] or ""
            if name not in CONSTRAINTS:
                raise ValueError(f"unknown constraint {name!r}; known: {', '.join(CONSTRAINTS)}")
            try:
                constraints.append(CONSTRAINTS[name](argument))
            except (ValueError, re.error) as error:
                raise ValueError(f"constraint {name}({argument}): {error}") from None
            end = hit.end()
        rest = text[end:]
        if rest not in {"", "?"} and not rest.startswith("="):
            raise ValueError(f"{{{text}}} is not a parameter")
        default = rest[1:] if rest.startswith("=") else None
        optional = bool(rest) or bool(head[1])
        return cls(head[2], tuple(constraints), bool(head[1]), optional, default)


@dataclass(frozen=True)
class RouteTemplate:
    """A parsed template."""

    text: str
    pattern: re.Pattern[str]
    parameters: tuple[_Parameter, ...]
    precedence: tuple[int, ...]
    """One rank for each segment; a lower rank is more specific."""

    @classmethod
    def parse(cls, text: str) -> RouteTemplate:
        """Parse a template; leading and trailing slashes are ignored.

        Raises:
            ValueError: the template is invalid; names the template and the reason.
        """
        pattern = ""
        parameters: list[_Parameter] = []
        precedence: list[int] = []
        try:
            for segment in _segments(text.strip("/")):
                body, named, rank = _parse_segment(segment)
                is_optional = rank != _MIXED and any(one.is_optional for one in named)
                pattern += f"(?:/{body})?" if is_optional else f"/{body}"
                parameters.extend(named)
                precedence.append(rank)
        except ValueError as error:
            raise ValueError(f"route {text!r}: {error}") from None
        names = [parameter.name.lower() for parameter in parameters]
        if len(set(names)) < len(names):
            raise ValueError(f"route {text!r}: a parameter occurs twice")
        compiled = re.compile(pattern, re.IGNORECASE | re.DOTALL)
        return cls(text, compiled, tuple(parameters), tuple(precedence))

    def match(self, path: str) -> dict[str, str] | None:
        """The parameters of a percent-encoded path; None if the path does not match."""
        bare = path.strip("/")
        hit = self.pattern.fullmatch(f"/{bare}" if bare else "")
        if hit is None:
            return None
        values: dict[str, str] = {}
        for parameter in self.parameters:
            raw = hit[parameter.name]
            value = _decoded(raw) if raw else parameter.default
            if value is None:
                continue
            if not all(check(value) for check in parameter.constraints):
                return None
            values[parameter.name] = value
        return values


def _decoded(value: str) -> str:
    """Decode a part of a path as ASP.NET does: an encoded slash stays encoded."""
    return unquote(_ENCODED_SLASH.sub(r"%25\1", value))


def _segments(text: str) -> list[str]:
    """Split a template at slashes outside of braces."""
    if not text:
        return []
    segments, depth = [""], 0
    for character in text:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "/" and depth == 0:
            segments.append("")
        else:
            segments[-1] += character
    if depth or "" in segments:
        raise ValueError("an empty segment, or braces that do not match")
    return segments


_LITERAL, _MIXED, _CONSTRAINED, _FREE, _CATCH_ALL = range(5)


def _parse_segment(segment: str) -> tuple[str, list[_Parameter], int]:
    """The regular expression, the parameters and the rank of a segment."""
    pattern, parameters, end = "", list[_Parameter](), 0
    for hit in _PARAMETER.finditer(segment):
        parameter = _Parameter.parse(hit[1])
        pattern += _literal(segment[end : hit.start()])
        pattern += f"(?P<{parameter.name}>{'.*' if parameter.is_catch_all else '[^/]+'})"
        parameters.append(parameter)
        end = hit.end()
    pattern += _literal(segment[end:])
    if not parameters:
        return pattern, parameters, _LITERAL
    is_whole = len(parameters) == 1 and _PARAMETER.fullmatch(segment) is not None
    if not is_whole:
        if any(parameter.is_catch_all for parameter in parameters):
            raise ValueError(f"the catch-all in {segment!r} must be a segment of its own")
        return pattern, parameters, _MIXED
    if parameters[0].is_catch_all:
        return pattern, parameters, _CATCH_ALL
    return pattern, parameters, _CONSTRAINED if parameters[0].constraints else _FREE


def _literal(text: str) -> str:
    if "{" in text or "}" in text:
        raise ValueError(f"braces that do not match in {text!r}")
    return re.escape(text)


class RouteTable(Generic[T]):
    """Routes and their targets."""

    def __init__(self, routes: Sequence[tuple[RouteTemplate, T]]) -> None:
        self._routes = sorted(routes, key=lambda route: route[0].precedence)

    def match(self, path: str, accept: Callable[[T], bool]) -> tuple[T, dict[str, str]] | None:
        """The target of the most specific route that matches a path, and the route's parameters."""
        for template, target in self._routes:
            if accept(target) and (values := template.match(path)) is not None:
                return target, values
        return None
