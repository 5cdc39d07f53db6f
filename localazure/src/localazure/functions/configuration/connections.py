"""Connections that bindings name: an app setting with a secret, or settings for an identity.

`NAME` (or `AzureWebJobsNAME`) holds a connection string. Settings such as
`NAME__fullyQualifiedNamespace` name the service; DefaultAzureCredential then supplies the identity.

Source: https://learn.microsoft.com/azure/azure-functions/functions-reference#connections
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusClient

_WEBJOBS_PREFIX = "AzureWebJobs"
DEFAULT_SERVICE_BUS = "AzureWebJobsServiceBus"
"""The connection of bindings that name none."""


def setting(name: str, settings: Mapping[str, str]) -> str | None:
    """An app setting by the name in a binding, with or without the prefix AzureWebJobs.

    Raises:
        ValueError: the name is a connection string or an address, which the text does not repeat.
    """
    if any(mark in name for mark in ("=", ";", "://")):
        raise ValueError(
            "a connection is a connection string or an address; it must be the name of an app "
            "setting that holds it"
        )
    return settings.get(name) or settings.get(f"{_WEBJOBS_PREFIX}{name}")


def identity(connection: str, settings: Mapping[str, str]) -> Any:
    """The credential of an identity-based connection."""
    from azure.identity.aio import DefaultAzureCredential, ManagedIdentityCredential

    client_id = setting(f"{connection}__clientId", settings)
    kind = setting(f"{connection}__credential", settings)
    if kind is not None and kind.lower() == "managedidentity":
        return ManagedIdentityCredential(client_id=client_id)
    return DefaultAzureCredential(managed_identity_client_id=client_id)


def check_service_bus(connection: str, settings: Mapping[str, str]) -> None:
    """Check that a Service Bus connection is configured.

    Raises:
        ValueError: the connection is not configured; names the settings to set.
    """
    if not (
        setting(connection, settings) or setting(f"{connection}__fullyQualifiedNamespace", settings)
    ):
        raise ValueError(
            f"the connection {connection!r} is not configured: set the app setting "
            f"{connection} to a connection string, or {connection}__fullyQualifiedNamespace"
        )


@contextlib.asynccontextmanager
async def service_bus_client(
    connection: str, settings: Mapping[str, str], **options: Any
) -> AsyncGenerator[ServiceBusClient]:
    """A client for a Service Bus connection, by the name in a binding; closed on exit.

    Raises:
        ValueError: the connection is not configured, or its connection string is malformed.
    """
    from azure.servicebus.aio import ServiceBusClient

    check_service_bus(connection, settings)
    secret = setting(connection, settings)
    if secret:
        async with ServiceBusClient.from_connection_string(secret, **options) as client:
            yield client
        return
    namespace = setting(f"{connection}__fullyQualifiedNamespace", settings) or ""
    async with (
        identity(connection, settings) as credential,
        ServiceBusClient(namespace, credential, **options) as client,
    ):
        yield client
