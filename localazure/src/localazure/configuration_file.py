"""Reads a JSON configuration file into a pydantic model. Errors name file, line, key and value.

Each key is there once, and each number is finite: otherwise the last value would win, and NaN
would pass. Comments (`//`, `/* */`) and trailing commas are allowed, as in the files of the
Functions tools.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from localazure.errors import ConfigurationError

Step = str | int
M = TypeVar("M", bound=BaseModel)

_LONGEST_VALUE = 200
# Strings are matched first, so that `//` inside one (a URL) is not a comment.
_STRING_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_STRING_OR_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')
_SEPARATORS = re.compile(r"[ \t\n\r,:]*")
_UNKNOWN_KEY = "unknown_key"


class ConfigurationModel(BaseModel):
    """An object of a configuration file.

    Keys are camelCase, null is equivalent to a missing key, and an unknown key is an error.
    """

    # Processes use few of the models that they import: build a validator at its first use.
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, defer_build=True
    )

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        document = {
            name: member
            for name, member in cast("dict[str, Any]", value).items()
            if member is not None
        }
        if cls.model_config.get("extra") is not None:
            return document  # the model has its own rule for unknown keys
        keys = [field.alias or name for name, field in cls.model_fields.items()]
        for name in document:
            if name not in keys and name not in cls.model_fields:
                raise PydanticCustomError(
                    _UNKNOWN_KEY,
                    "unknown key; known are {known}",
                    {"key": name, "known": ", ".join(keys)},
                )
        return document


class OpenConfigurationModel(ConfigurationModel):
    """An object that keeps unknown keys (`model_extra`), to warn about them."""

    model_config = ConfigDict(extra="allow")


def read_json(path: Path) -> tuple[str, Any]:
    """Return the text of a file, with comments blanked, and its JSON value.

    Raises:
        ConfigurationError: the file is not JSON, a key is there twice, or a number is not finite.
            The message names file, line, and column or key.
        FileNotFoundError: there is no such file.
    """
    content = path.read_bytes()
    try:
        text = strip_comments(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(f"{path}:{line}: not UTF-8: {error.reason}") from None
    try:
        document = json.loads(text)
        _check_members(str(path), text, _skip(text, 0), ())
    except json.JSONDecodeError as error:
        raise ConfigurationError(
            f"{path}:{error.lineno}: not JSON: {error.msg} (column {error.colno})"
        ) from None
    except RecursionError:
        raise ConfigurationError(f"{path}: not JSON: it is nested too deeply") from None
    return text, document


def read_configuration(path: Path, model: type[M], *, shows_values: bool = True) -> M:
    """Read a file into a model.

    Args:
        path: a JSON file.
        model: the model of the file's content.
        shows_values: False where values may be secrets.

    Raises:
        ConfigurationError: the file is not JSON or does not fit the model.
        FileNotFoundError: there is no such file.
    """
    text, document = read_json(path)
    return validate(document, model, origin=str(path), text=text, shows_values=shows_values)


def validate(
    document: Any, model: type[M], *, origin: str, text: str = "", shows_values: bool = True
) -> M:
    """Validate a parsed document.

    Args:
        document: the JSON value.
        model: the model of the value.
        origin: the name of the file, or of another source, in errors.
        text: the file's text, for line numbers; empty if there is no file.
        shows_values: False where values may be secrets.

    Raises:
        ConfigurationError: one line for each error: `FILE:LINE: KEY: MESSAGE, found VALUE`.
    """
    try:
        return model.model_validate(document)
    except ValidationError as invalid:
        errors = [
            _described(error, document, origin, text, shows_values=shows_values)
            for error in invalid.errors(include_url=False)
        ]
        raise ConfigurationError("\n".join(errors)) from None


def error_at(location: Sequence[Step], message: str) -> ValidationError:
    """Return an error about a value inside an object, to be raised by a validator of the object.

    Args:
        location: keys and indices from the object to the value.
        message: the problem.
    """
    error = PydanticCustomError("invalid", "{message}", {"message": message})
    return ValidationError.from_exception_data(
        "configuration", [InitErrorDetails(type=error, loc=tuple(location), input=None)]
    )


def strip_comments(text: str) -> str:
    """Replace comments and trailing commas in JSON text by spaces; lines keep their numbers."""

    def blank(match: re.Match[str]) -> str:
        return match[1] or re.sub(r"[^\n]", " ", match[0])

    return _STRING_OR_TRAILING_COMMA.sub(blank, _STRING_OR_COMMENT.sub(blank, text))


def line_of(text: str, location: Sequence[Step]) -> int:
    """Return the line, from 1, where a value begins; for an object's member, the line of its key.

    Args:
        text: valid JSON.
        location: keys and indices from the root, used up to the first that does not exist.
    """
    decode = json.JSONDecoder().raw_decode
    value_start = position = _skip(text, 0)
    for step in location:
        is_object = text[position] == "{"
        position = _skip(text, position + 1)
        index = 0
        while text[position] not in "}]":
            start, key = position, cast("Step", index)
            if is_object:
                key, position = decode(text, position)
                position = _skip(text, position)
            if key == step:
                value_start = start
                break
            _, position = decode(text, position)
            position = _skip(text, position)
            index += 1
        else:
            break
        if text[position] not in "{[":
            break
    return text.count("\n", 0, value_start) + 1


def _check_members(file: str, text: str, position: int, location: tuple[Step, ...]) -> int:
    """Check the value at a position of valid JSON; return the position after it.

    A key's second value is not shown: it may be a secret.

    Raises:
        ConfigurationError: a key is there twice, or a number is not finite.
    """
    decode = json.JSONDecoder().raw_decode
    opening, start = text[position], position
    if opening not in "{[":
        value, position = decode(text, position)
        if isinstance(value, float) and not math.isfinite(value):
            message = f"a number is finite, found {json.dumps(value)}"
            raise ConfigurationError(_line(file, text, start, location, message))
        return position
    seen = set[Step]()
    position = _skip(text, position + 1)
    while text[position] not in "}]":
        start, step = position, cast("Step", len(seen))
        if opening == "{":
            step, position = decode(text, position)
            if step in seen:
                message = "this key is there twice"
                raise ConfigurationError(_line(file, text, start, (*location, step), message))
        seen.add(step)
        position = _check_members(file, text, _skip(text, position), (*location, step))
        position = _skip(text, position)
    return position + 1


def _line(file: str, text: str, position: int, location: Sequence[Step], message: str) -> str:
    line = text.count("\n", 0, position) + 1
    return f"{file}:{line}: {_shown(location) or 'top level'}: {message}"


def _skip(text: str, position: int) -> int:
    """Return the position after white space, commas and colons."""
    match = _SEPARATORS.match(text, position)
    assert match is not None  # the pattern matches the empty string
    return match.end()


def _described(
    error: ErrorDetails, document: Any, origin: str, text: str, *, shows_values: bool
) -> str:
    steps = list(error["loc"])
    context = error.get("ctx", {})
    if error["type"] == _UNKNOWN_KEY:
        steps.append(context["key"])
    location, value = _resolve(document, steps)
    message = error["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if error["type"] == "missing":
        message = f"{steps[-1]!r} is missing"
    elif shows_values:
        message += f", found {json.dumps(value, default=str)[:_LONGEST_VALUE]}"
    line = f":{line_of(text, location)}" if text else ""
    return f"{origin}{line}: {_shown(location) or 'top level'}: {message}"


def _resolve(document: Any, steps: Sequence[Step]) -> tuple[list[Step], Any]:
    """Return the steps that exist in the document (pydantic adds tags of unions), and the value."""
    location: list[Step] = []
    value = document
    for step in steps:
        is_member = isinstance(value, dict) and step in value
        is_item = isinstance(value, list) and isinstance(step, int) and step < len(value)
        if is_member or is_item:
            value = cast("Any", value)[step]
            location.append(step)
    return location, value


def _shown(location: Sequence[Step]) -> str:
    shown = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return shown.removeprefix(".")
