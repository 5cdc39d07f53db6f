"""JSON in which each key of an object is there once; Python's parser lets the last one win."""

from __future__ import annotations

import json
from typing import Any

from orchestrations.errors import shorten

SHOWN_CHARACTERS = 100


def loads(text: bytes | str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is not JSON, or a key is there twice; the message names the key.
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            both = shorten(f"{found[key]!r} and {value!r}", SHOWN_CHARACTERS)
            raise ValueError(f"key {key!r} is there twice, with {both}")
        found[key] = value
    return found
