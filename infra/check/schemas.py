"""Azure's resource types as data: what each can set, and in which API version."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "schemas"


@dataclass(frozen=True)
class ResourceType:
    """One resource type. `types[""]` is the resource's own body.

    A type is `{"properties": {name: {"type", "required", "readOnly"}}, "additional": type}` or
    `{"discriminator": property, "elements": {value: type}}`.
    """

    api_versions: tuple[str, ...]
    types: dict[str, Any]


def file_name(resource_type: str) -> str:
    """Return the file of a resource type, whose slashes are replaced."""
    return resource_type.replace("/", "_").lower() + ".json"


@cache
def find(resource_type: str) -> ResourceType | None:
    """The type, or None if there is no data on it."""
    for folder in (FOLDER, FOLDER / "by_hand"):
        path = folder / file_name(resource_type)
        if path.exists():
            document = json.loads(path.read_text("utf-8"))
            versions = document["apiVersion"]
            return ResourceType(
                tuple([versions] if isinstance(versions, str) else versions), document["types"]
            )
    return None
