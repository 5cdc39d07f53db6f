"""The file `azure-ml.json`: what the local workspace has besides Azure ML's own defaults."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from localazure.errors import ConfigurationError

DEFAULT_DATASTORE = "workspaceblobstore"
ARTIFACT_DATASTORE = "workspaceartifactstore"
BUILT_IN_DATASTORES = {DEFAULT_DATASTORE: "azureml-blobstore", ARTIFACT_DATASTORE: "azureml"}
DEFAULT_PROVISIONING_SECONDS = 2.0
KNOWN_KEYS = {"datastores", "quota", "provisioningSeconds"}


class InvalidConfigurationError(ConfigurationError):
    """`azure-ml.json` is not what it must be; the message names file, key and value."""


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """What `azure-ml.json` says."""

    datastores: dict[str, str] = field(default_factory=lambda: dict(BUILT_IN_DATASTORES))
    """Datastore name → container name, the built-in ones included."""
    quota: dict[str, int] = field(default_factory=dict[str, int])
    """VM size in lower case → nodes that all clusters of that size may have together."""
    provisioning_seconds: float = DEFAULT_PROVISIONING_SECONDS
    """From the decision to add a node until it is idle."""

    @classmethod
    def read(cls, path: Path) -> Configuration:
        """Parse the file; a missing one means "nothing but the defaults".

        Raises:
            InvalidConfigurationError: it is not JSON, or a key or value is wrong.
        """
        try:
            document: Any = json.loads(path.read_text())
        except FileNotFoundError:
            return cls()
        except json.JSONDecodeError as error:
            raise InvalidConfigurationError(f"{path} is not JSON: {error}") from error
        if not isinstance(document, dict):
            raise InvalidConfigurationError(f"{path} must hold a JSON object")
        return cls.parse(cast("dict[str, Any]", document), origin=str(path))

    @classmethod
    def parse(cls, document: dict[str, Any], *, origin: str) -> Configuration:
        """Check a parsed document; `origin` names it in errors."""
        unknown = sorted(set(document) - KNOWN_KEYS)
        if unknown:
            raise InvalidConfigurationError(
                f"{origin}: unknown key {unknown[0]!r}; known are {', '.join(sorted(KNOWN_KEYS))}"
            )
        return cls(
            datastores=_datastores(document.get("datastores", []), origin),
            quota=_quota(document.get("quota", {}), origin),
            provisioning_seconds=_seconds(
                document.get("provisioningSeconds", DEFAULT_PROVISIONING_SECONDS), origin
            ),
        )


def _datastores(entries: Any, origin: str) -> dict[str, str]:
    datastores = dict(BUILT_IN_DATASTORES)
    if not isinstance(entries, list):
        raise InvalidConfigurationError(f"{origin}: datastores must be a list")
    for number, entry in enumerate(cast("list[Any]", entries)):
        match entry:
            case {"name": str(name), "containerName": str(container), **rest} if not rest:
                pass
            case _:
                raise InvalidConfigurationError(
                    f"{origin}: datastores[{number}] is {json.dumps(entry)}; it must be "
                    '{"name": …, "containerName": …}'
                )
        if name in datastores:
            raise InvalidConfigurationError(
                f"{origin}: datastores[{number}].name {name!r} is taken already"
            )
        datastores[name] = container
    return datastores


def _quota(entries: Any, origin: str) -> dict[str, int]:
    if not isinstance(entries, dict):
        raise InvalidConfigurationError(f"{origin}: quota must be an object: VM size → nodes")
    quota: dict[str, int] = {}
    for size, nodes in cast("dict[str, Any]", entries).items():
        if not isinstance(nodes, int) or isinstance(nodes, bool) or nodes < 0:
            raise InvalidConfigurationError(
                f"{origin}: quota[{size!r}] is {nodes!r}; it must be a number of nodes"
            )
        quota[size.lower()] = nodes
    return quota


def _seconds(value: Any, origin: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
        raise InvalidConfigurationError(
            f"{origin}: provisioningSeconds is {value!r}; it must be a number, not negative"
        )
    return float(value)
