"""JSON as the Functions tools take it: UTF-8 with or without a BOM, comments, trailing commas."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, cast

from localazure.functions.errors import AppLoadError

# A string is matched first, so that a `//` inside of it (every URL) is no comment.
_STRING_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_STRING_OR_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')


def parse_object(text: str) -> dict[str, Any]:
    """Parse a JSON object in which comments (`//`, `/* */`) and trailing commas may stand.

    Raises:
        ValueError: it is no JSON, or no object.
    """
    text = _STRING_OR_COMMENT.sub(lambda match: match[1] or " ", text)
    document: Any = json.loads(_STRING_OR_TRAILING_COMMA.sub(lambda match: match[1] or "", text))
    if not isinstance(document, dict):
        raise ValueError(f"expected an object, found {type(document).__name__}")  # noqa: TRY004 - a fault of the text, as any other that json.loads reports
    return cast("dict[str, Any]", document)


def read_object(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file.

    Raises:
        AppLoadError: the file holds none; names file, line and column.
        FileNotFoundError: there is no such file.
    """
    try:
        return parse_object(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise AppLoadError(f"{path}: {error}") from None
