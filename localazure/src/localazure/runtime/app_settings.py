"""The process environment of an app: settings for the SDKs, and those of the app's own file.

The file maps app setting → value, with placeholders such as `{storage_connection_string}` or
`{topic_endpoint:landfall}`, so that an app's own names stay in the app's folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from localazure.errors import ConfigurationError
from localazure.machinelearning.client_settings import app_settings as azure_ml_settings
from localazure.runtime.environment import LOOPBACK, STORAGE_ACCOUNT, Environment

_PLACEHOLDER = re.compile(r"\{(?P<name>[a-z_]+)(?::(?P<argument>[^{}]+))?\}")


class AppSettingsError(ConfigurationError):
    """The app-settings file is malformed; names file, setting and placeholder."""


_PLACEHOLDERS: dict[str, Callable[[Environment], str]] = {
    "storage_connection_string": Environment.storage_connection_string,
    "blob_url": lambda env: f"http://{LOOPBACK}:{env.ports.blob}/{STORAGE_ACCOUNT}",
    "service_bus_connection_string": lambda env: env.service_bus_connection_string,
    "event_grid_key": lambda env: env.keys.event_grid,
    "subscription_id": lambda env: env.subscription_id,
    "resource_group": lambda env: env.resource_group,
    "workspace": lambda env: env.workspace,
}
_PLACEHOLDERS_WITH_ARGUMENT: dict[str, Callable[[Environment, str], str]] = {
    "topic_endpoint": Environment.topic_endpoint,
}
_KNOWN = ", ".join(
    sorted([*_PLACEHOLDERS, *(f"{name}:NAME" for name in _PLACEHOLDERS_WITH_ARGUMENT)])
)


def expand_app_settings(environment: Environment, file: Path) -> dict[str, str]:
    """Settings that hold for any app, overlaid by the expanded file (none if it is missing).

    Raises:
        AppSettingsError: the file is no flat JSON object of strings, or has an unknown placeholder.
    """
    settings = {
        "AzureWebJobsStorage": environment.storage_connection_string(),
        "FUNCTIONS_WORKER_RUNTIME": "python",
        **azure_ml_settings(environment),
    }
    if not file.is_file():
        return settings
    try:
        document: Any = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise AppSettingsError(f"{file}: no valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise AppSettingsError(f"{file}: must be an object of app setting to value")
    for name, value in cast("dict[str, Any]", document).items():
        if not isinstance(value, str):
            raise AppSettingsError(f"{file}: {name}: {value!r} is no string")
        settings[name] = _expand(environment, file, name, value)
    return settings


def _expand(environment: Environment, file: Path, setting: str, value: str) -> str:
    def replace(match: re.Match[str]) -> str:
        name, argument = match["name"], match["argument"]
        if argument is None and name in _PLACEHOLDERS:
            return _PLACEHOLDERS[name](environment)
        if argument is not None and name in _PLACEHOLDERS_WITH_ARGUMENT:
            return _PLACEHOLDERS_WITH_ARGUMENT[name](environment, argument)
        raise AppSettingsError(
            f"{file}: {setting}: unknown placeholder {match[0]}; known are {_KNOWN}"
        )

    return _PLACEHOLDER.sub(replace, value)
