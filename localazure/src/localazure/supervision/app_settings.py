"""The process environment of an app: settings for the SDKs, and settings of the app's file.

The file maps app settings to values with placeholders, such as `{storage_connection_string:NAME}`
or `{topic_endpoint:landfall}`, so that only the app's folder has names of the app.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, RootModel

from localazure.configuration_file import error_at, read_configuration
from localazure.errors import ConfigurationError
from localazure.machinelearning.client_settings import app_settings as azure_ml_settings
from localazure.runtime.environment import LOOPBACK, STORAGE_ACCOUNT, Environment
from localazure.runtime.identity import client_id_of
from localazure.servicebus.configuration import load
from localazure.storage.configuration import StorageConfiguration

_PLACEHOLDER = re.compile(r"\{(?P<name>[a-z_]+)(?::(?P<argument>[^{}]+))?\}")


def _storage_connection_string(environment: Environment, account: str) -> str:
    declared = StorageConfiguration.read(environment.storage_config).accounts
    if account not in declared:
        raise ConfigurationError(
            f"app settings: {environment.storage_config} declares no account {account!r}; "
            f"declared are {', '.join(sorted(declared))}"
        )
    return environment.storage_connection_string(account)


def _service_bus_connection_string(environment: Environment, argument: str) -> str:
    """Return the connection string of a rule: `RULE` of the namespace, or `ENTITY/RULE`."""
    rules = load(environment.service_bus_config).rules()
    declared = {f"{entity}/{rule.name}".lstrip("/"): (rule.name, entity) for entity, rule in rules}
    if argument not in declared:
        raise ConfigurationError(
            f"app settings: {environment.service_bus_config} declares no authorization rule "
            f"{argument!r}; declared are {', '.join(declared) or 'none'}"
        )
    return environment.service_bus_connection_string_of(*declared[argument])


_PLACEHOLDERS: dict[str, Callable[[Environment], str]] = {
    "storage_connection_string": Environment.storage_connection_string,
    "blob_url": lambda env: f"http://{LOOPBACK}:{env.ports.blob}/{STORAGE_ACCOUNT}",
    "service_bus_connection_string": lambda env: env.service_bus_connection_string,
    "service_bus_host": lambda env: env.service_bus_host,
    "azure_ml_url": lambda env: env.azure_ml_url,
    "subscription_id": lambda env: env.subscription_id,
    "resource_group": lambda env: env.resource_group,
    "workspace": lambda env: env.workspace,
}
_PLACEHOLDERS_WITH_ARGUMENT: dict[str, Callable[[Environment, str], str]] = {
    "blob_tls_endpoint": Environment.blob_tls_endpoint,
    "queue_tls_endpoint": Environment.queue_tls_endpoint,
    "table_tls_endpoint": Environment.table_tls_endpoint,
    "client_id": lambda _, principal: client_id_of(principal),
    "topic_tls_endpoint": Environment.topic_tls_endpoint,
    "topic_endpoint": Environment.topic_endpoint,
    "event_grid_key": lambda environment, topic: environment.event_grid_keys(topic)[0],
    "storage_connection_string": _storage_connection_string,
    "service_bus_connection_string": _service_bus_connection_string,
}
_KNOWN = ", ".join(
    sorted([*_PLACEHOLDERS, *(f"{name}:NAME" for name in _PLACEHOLDERS_WITH_ARGUMENT)])
)


def _check_placeholders(settings: dict[str, str]) -> dict[str, str]:
    for name, value in settings.items():
        for match in _PLACEHOLDER.finditer(value):
            placeholders = (
                _PLACEHOLDERS if match["argument"] is None else _PLACEHOLDERS_WITH_ARGUMENT
            )
            if match["name"] not in placeholders:
                raise error_at((name,), f"unknown placeholder {match[0]}; known are {_KNOWN}")
    return settings


class _AppSettings(RootModel[Annotated[dict[str, str], AfterValidator(_check_placeholders)]]):
    pass


def expand_app_settings(environment: Environment, file: Path) -> dict[str, str]:
    """Return the settings for all apps, updated with the expanded file, if it exists.

    Raises:
        ConfigurationError: the file is not an object of strings, or has an unknown placeholder or
            account.
    """

    def replace(match: re.Match[str]) -> str:
        name, argument = match["name"], match["argument"]
        if argument is None:
            return _PLACEHOLDERS[name](environment)
        return _PLACEHOLDERS_WITH_ARGUMENT[name](environment, argument)

    written: dict[str, str] = {}
    if file.is_file():
        # Settings may be secrets, so errors do not show them.
        texts = read_configuration(file, _AppSettings, shows_values=False).root
        written = {name: _PLACEHOLDER.sub(replace, value) for name, value in texts.items()}
    settings = {"FUNCTIONS_WORKER_RUNTIME": "python", **azure_ml_settings(environment)}
    if not any(name.startswith("AzureWebJobsStorage__") for name in written):
        settings["AzureWebJobsStorage"] = environment.storage_connection_string()
    return settings | written
