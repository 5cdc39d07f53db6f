"""Storage accounts that bindings name: a connection string, or settings for an identity.

Sources: https://learn.microsoft.com/azure/storage/common/storage-configure-connection-string,
https://learn.microsoft.com/azure/azure-functions/functions-reference#connection-values
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from localazure.functions.configuration.connections import setting
from localazure.runtime.environment import LOOPBACK, STORAGE_ACCOUNT, STORAGE_KEY
from localazure.storage_client.endpoint import Endpoint, Service

DEFAULT_CONNECTION: Final = "AzureWebJobsStorage"
HOSTS_CONTAINER: Final = "azure-webjobs-hosts"
"""The container of the host in the account of the default connection."""

# The default ports of Azurite, to which UseDevelopmentStorage=true refers.
_DEVELOPMENT_PORTS: Final = {Service.BLOB: 10000, Service.QUEUE: 10001, Service.TABLE: 10002}


def find_endpoint(connection: str, service: Service, settings: Mapping[str, str]) -> Endpoint:
    """The endpoint of one service of a binding's storage account.

    Raises:
        ValueError: the connection is not configured or malformed; names settings without values.
    """
    name = connection or DEFAULT_CONNECTION
    text = setting(name, settings)
    if text:
        return _parse(name, text, service)
    url = setting(f"{name}__{service}ServiceUri", settings)
    if not url and service is Service.BLOB:
        url = setting(f"{name}__serviceUri", settings)
    account = setting(f"{name}__accountName", settings)
    if not url and account:
        url = f"https://{account}.{service}.core.windows.net"
    if url:
        return Endpoint(url=url.rstrip("/"), service=service, connection=name)
    raise ValueError(
        f"the connection {name!r} is not configured: set the app setting {name} to a connection "
        f"string, or {name}__{service}ServiceUri, or {name}__accountName"
    )


def _parse(name: str, text: str, service: Service) -> Endpoint:
    pairs = [part.partition("=") for part in text.strip().strip(";").split(";")]
    if not all(separator for _, separator, _ in pairs):
        raise ValueError(f"the app setting {name} is not a storage connection string")
    values = {key.strip().lower(): value for key, _, value in pairs}
    if values.get("usedevelopmentstorage", "").lower() == "true":
        return Endpoint(
            url=f"http://{LOOPBACK}:{_DEVELOPMENT_PORTS[service]}/{STORAGE_ACCOUNT}",
            service=service,
            connection=name,
            account=STORAGE_ACCOUNT,
            key=STORAGE_KEY,
        )
    account = values.get("accountname", "")
    url = values.get(f"{service}endpoint")
    if not url and account:
        scheme = values.get("defaultendpointsprotocol", "https")
        suffix = values.get("endpointsuffix", "core.windows.net")
        url = f"{scheme}://{account}.{service}.{suffix}"
    key, sas = values.get("accountkey"), values.get("sharedaccesssignature")
    if not url or not (key or sas):
        raise ValueError(
            f"the app setting {name} is not a connection string for the {service} service: it "
            f"needs AccountName (or {service.capitalize()}Endpoint), and AccountKey or "
            "SharedAccessSignature"
        )
    return Endpoint(
        url=url.rstrip("/"),
        service=service,
        connection=name,
        account=account,
        key=key,
        sas=sas.lstrip("?") if sas and not key else None,
    )
