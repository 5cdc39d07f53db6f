"""App settings: the only place where the process environment is read.

A connection is named as Azure Functions names them: `NAME` holds a connection string, or
`NAME__<property>` an endpoint that is reached with the app's managed identity.
https://learn.microsoft.com/azure/azure-functions/functions-reference#configure-an-identity-based-connection
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from orchestrations.errors import InvalidSetting

MINIMUM_KEEP_COPIES_DAYS = 30
APP_FOLDER = Path(__file__).parents[2]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Connection:
    """Either a connection string, or an endpoint for the managed identity."""

    connection_string: str | None
    endpoint: str | None


@dataclass(frozen=True)
class Settings:
    """Typed access to the app settings. Nothing is read before it is asked for."""

    values: Mapping[str, str]

    def required(self, name: str) -> str:
        """The value of a setting.

        Raises:
            InvalidSetting: it is missing or empty.
        """
        value = self.values.get(name, "")
        if not value:
            raise InvalidSetting(f"app setting {name} is missing: set it in the function app")
        return value

    def decided(self, name: str) -> str:
        """The value of a setting that may be empty, but not missing.

        Raises:
            InvalidSetting: it is missing.
        """
        value = self.values.get(name)
        if value is None:
            raise InvalidSetting(
                f"app setting {name} is missing: set it in the function app, to nothing if this "
                "deployment has none"
            )
        return value

    def connection(self, name: str, endpoint_property: str) -> Connection:
        """The connection `name`, by connection string or by `name__<endpoint_property>`.

        Raises:
            InvalidSetting: neither is set.
        """
        connection_string = self.values.get(name) or None
        endpoint = self.values.get(f"{name}__{endpoint_property}") or None
        if connection_string is None and endpoint is None:
            raise InvalidSetting(
                f"app setting {name} is missing: set it to a connection string, "
                f"or {name}__{endpoint_property} to an endpoint for the managed identity"
            )
        return Connection(connection_string, endpoint)

    @property
    def pipelines_folder(self) -> Path:
        """Where `<name>/pipeline.yml` files lie; `PIPELINES_FOLDER` if it is set."""
        return Path(self.values.get("PIPELINES_FOLDER") or APP_FOLDER / "pipelines")

    @property
    def records_container(self) -> str:
        """Container of manifests, ledger and claims; `RECORDS_CONTAINER` if it is set."""
        return self.values.get("RECORDS_CONTAINER") or "landfall"

    @property
    def keep_copies_days(self) -> int | None:
        """How long copies that no newer version needs are kept; None: for ever.

        `KEEP_COPIES_DAYS`: a number of days, 30 or more.

        Raises:
            InvalidSetting: it is no such number.
        """
        value = self.values.get("KEEP_COPIES_DAYS")
        if not value:
            return None
        if not value.isdecimal() or int(value) < MINIMUM_KEEP_COPIES_DAYS:
            raise InvalidSetting(
                f"app setting KEEP_COPIES_DAYS: set it to a whole number of days, "
                f"{MINIMUM_KEEP_COPIES_DAYS} or more; without it copies are kept for ever"
            )
        return int(value)

    @property
    def records_datastore(self) -> str:
        """The workspace's datastore on the records container; `RECORDS_DATASTORE` if it is set."""
        return self.values.get("RECORDS_DATASTORE") or "landfall"

    @property
    def resource_manager_endpoint(self) -> str:
        """Azure Resource Manager, without a trailing slash; `RESOURCE_MANAGER_ENDPOINT` if set."""
        return (
            self.values.get("RESOURCE_MANAGER_ENDPOINT") or "https://management.azure.com"
        ).rstrip("/")

    @property
    def otlp_endpoint(self) -> str | None:
        """An OTLP receiver (http/protobuf), without a trailing slash; None: there is none.

        `OTEL_EXPORTER_OTLP_ENDPOINT`, which OpenTelemetry names so.
        """
        return self.values.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").rstrip("/") or None

    @property
    def sends_telemetry(self) -> bool:
        """Whether the app's own spans and metrics go anywhere."""
        return bool(self.otlp_endpoint or self.values.get("APPLICATIONINSIGHTS_CONNECTION_STRING"))

    @property
    def trace_query_endpoint(self) -> str | None:
        """A store of traces with Jaeger's query API; `TRACE_QUERY_ENDPOINT` if it is set."""
        return self.values.get("TRACE_QUERY_ENDPOINT", "").rstrip("/") or None

    @property
    def service_name(self) -> str:
        """The name that spans and metrics are sent under: the function app's, on Azure."""
        named = self.values.get("OTEL_SERVICE_NAME") or self.values.get("WEBSITE_SITE_NAME")
        return named or "landfall"

    @property
    def sign_in(self) -> Literal["key", "entra"]:
        """The credential of API callers, a function key or an Entra token; `API_SIGN_IN`.

        Raises:
            InvalidSetting: it is neither.
        """
        value = self.values.get("API_SIGN_IN") or "key"
        if value not in ("key", "entra"):
            raise InvalidSetting("app setting API_SIGN_IN: set it to key or entra")
        return value

    @property
    def webhook_networks(self) -> tuple[Network, ...]:
        """Networks beside the public internet that webhooks may be sent to, also by plain http.

        `WEBHOOK_ALLOWED_NETWORKS`: CIDR blocks, separated by commas.

        Raises:
            InvalidSetting: one of them is no CIDR block.
        """
        blocks = self.values.get("WEBHOOK_ALLOWED_NETWORKS", "").split(",")
        try:
            return tuple(ipaddress.ip_network(block.strip()) for block in blocks if block.strip())
        except ValueError as error:
            raise InvalidSetting(f"app setting WEBHOOK_ALLOWED_NETWORKS: {error}") from error
