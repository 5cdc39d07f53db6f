"""Reads `storage.json`: which containers exist from the start."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from localazure.errors import ConfigurationError

# https://learn.microsoft.com/rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata
_CONTAINER_NAME = re.compile(r"\$(root|web|logs)|(?=.{3,63}$)[a-z0-9]+(-[a-z0-9]+)*")


class StorageConfigurationError(ConfigurationError):
    """`storage.json` cannot be used; the message names file, place and value."""


def load_containers(path: Path) -> list[str]:
    """Names of the containers to make; none if there is no file.

    Raises:
        StorageConfigurationError: not the documented form.
    """
    if not path.exists():
        return []
    try:
        document: Any = json.loads(path.read_text())
    except ValueError as error:
        raise StorageConfigurationError(f"{path}: not JSON: {error}") from error
    if not isinstance(document, dict) or document.keys() - {"containers"}:
        raise StorageConfigurationError(
            f'{path}: expected {{"containers": [names]}} and nothing else, found {document!r}'
        )
    names: Any = document.get("containers", [])
    if not isinstance(names, list):
        raise StorageConfigurationError(f"{path}: containers: expected a list, found {names!r}")
    for index, name in enumerate(names):
        if not isinstance(name, str) or not _CONTAINER_NAME.fullmatch(name):
            raise StorageConfigurationError(
                f"{path}: containers[{index}]: {name!r} is no container name (3 to 63 lower-case "
                "letters, digits and single hyphens)"
            )
    return names
