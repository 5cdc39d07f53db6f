"""Binding expressions: `{name}` in a binding's settings, filled from the trigger's data.

Names ignore case; dots select members of JSON objects. `{rand-guid}`, `{datetime}` and `{sys.…}`
are always available. A doubled brace is a literal brace.

Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-expressions-patterns
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, cast

from localazure.json_text import parse_json

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_PARAMETER = re.compile(r"[A-Za-z_]\w*")

# The custom date formats of .NET that are used in the names of blobs and rows.
_DATE_FORMAT: Final = {
    "yyyy": "%Y",
    "yy": "%y",
    "MMMM": "%B",
    "MMM": "%b",
    "MM": "%m",
    "dddd": "%A",
    "ddd": "%a",
    "dd": "%d",
    "HH": "%H",
    "hh": "%I",
    "mm": "%M",
    "ss": "%S",
    "fff": "%f",
    "tt": "%p",
    "K": "Z",
}
_DATE_TOKEN = re.compile("|".join(sorted(_DATE_FORMAT, key=len, reverse=True)))
_DEFAULT_DATE: Final = "yyyy-MM-ddTHH-mm-ssK"
_GUID_FORMATS: Final = {"N": "{0.hex}", "D": "{0}", "B": "{{{0}}}", "P": "({0})"}


def resolve(template: str, data: Callable[[], Mapping[str, Any]], function: str) -> str:
    """Replace the expressions of a template by their values.

    Args:
        template: a binding's setting.
        data: returns the trigger's data; its names ignore case.
        function: name of the function, for `{sys.methodname}`.

    Raises:
        ValueError: an expression names missing data.
    """
    if "{" not in template and "}" not in template:
        return template
    named = data()
    lower = {name.lower(): value for name, value in named.items()}

    def value_of(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        return _evaluate(match[1].strip(), lower, function)

    try:
        return _TOKEN.sub(value_of, template)
    except LookupError as error:
        names = ", ".join(sorted(named)) or "nothing"
        raise ValueError(
            f"{template!r}: there is no value for {error.args[0]!r}; the trigger gives {names}"
        ) from None


def _evaluate(expression: str, data: Mapping[str, Any], function: str) -> str:
    name, _, format_text = expression.partition(":")
    first, *rest = name.split(".")
    if first.lower() in data:
        value = data[first.lower()]
        for step in rest:
            value = _member(value, step, expression)
        return _text(value, format_text)
    match name.lower():
        case "rand-guid" | "sys.randguid":
            return _guid(format_text)
        case "datetime" | "sys.utcnow":
            return _date(datetime.now(UTC), format_text)
        case "sys.methodname":
            return function
        case _:
            raise LookupError(expression)


def _member(value: Any, name: str, expression: str) -> Any:
    if isinstance(value, dict):
        for key, member in cast("dict[str, Any]", value).items():
            if key.lower() == name.lower():
                return member
    raise LookupError(expression)


def _text(value: Any, format_text: str) -> str:
    if isinstance(value, datetime):
        return _date(value, format_text)
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value)  # .NET also writes True and False
    return "" if value is None else json.dumps(value)


def _guid(format_text: str) -> str:
    template = _GUID_FORMATS.get(format_text.upper() or "D")
    if template is None:
        raise ValueError(f"{format_text!r} is not a format of a GUID; N, D, B and P are")
    return template.format(uuid.uuid4())


def _date(moment: datetime, format_text: str) -> str:
    def part(match: re.Match[str]) -> str:
        text = moment.strftime(_DATE_FORMAT[match[0]])
        return text[:3] if match[0] == "fff" else text

    return _DATE_TOKEN.sub(part, format_text or _DEFAULT_DATE)


def json_properties(text: str) -> dict[str, Any]:
    """The members of a JSON object, which expressions may name; empty for any other text."""
    try:
        document: Any = parse_json(text)
    except ValueError:
        return {}
    return cast("dict[str, Any]", document) if isinstance(document, dict) else {}


def capture_pattern(template: str) -> re.Pattern[str]:
    """A pattern for the paths that match a trigger's template, with a group for each expression.

    Each expression matches greedily, as in the real host.

    Raises:
        ValueError: an expression is not a plain name, or occurs twice.
    """
    pattern, end = "", 0
    for match in _TOKEN.finditer(template):
        pattern += re.escape(template[end : match.start()])
        end = match.end()
        if match[1] is None:
            pattern += re.escape(match[0][0])
        elif not _PARAMETER.fullmatch(match[1]):
            raise ValueError(f"{template!r}: {{{match[1]}}} is not a plain name")
        else:
            pattern += f"(?P<{match[1]}>.*)"
    try:
        return re.compile(pattern + re.escape(template[end:]), re.DOTALL)
    except re.error as error:
        raise ValueError(f"{template!r}: {error}") from None
