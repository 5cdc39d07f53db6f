"""App settings: the only place where the process environment is read.

Connections are named as in Azure Functions: `NAME` has a connection string, or `NAME__<property>`
has an endpoint that is accessed with the app's managed identity.
https://learn.microsoft.com/azure/azure-functions/functions-reference#configure-an-identity-based-connection
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from orchestrations.errors import InvalidSetting

KEEP_DAYS: Mapping[str, tuple[int, int]] = {
    "KEEP_COPIES_DAYS": (400, 30),
    "KEEP_CHECKPOINTS_DAYS": (30, 7),
    "KEEP_EVENTS_DAYS": (90, 7),
    # Reconciliation and repeated requests need the instances of the last 30 days.
    "KEEP_INSTANCES_DAYS": (60, 31),
    "KEEP_RECORDS_DAYS": (400, 60),
}
"""Setting of retention → its default, and the fewest days that it accepts."""
APP_FOLDER = Path(__file__).parents[2]
PARTS = ("app", "data", "workspace")
"""What has a region of its own."""


@dataclass(frozen=True)
class Connection:
    """Either a connection string, or an endpoint for the managed identity."""

    connection_string: str | None
    endpoint: str | None


@dataclass(frozen=True)
class Settings:
    """Typed access to the app settings. A setting is read only when it is used."""

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

    def explicit(self, name: str) -> str:
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
        """The folder of the `<name>/pipeline.yml` files; `PIPELINES_FOLDER` if it is set."""
        return Path(self.values.get("PIPELINES_FOLDER") or APP_FOLDER / "pipelines")

    @property
    def records_container(self) -> str:
        """Container of manifests, ledger and claims; `RECORDS_CONTAINER` if it is set."""
        return self.values.get("RECORDS_CONTAINER") or "landfall"

    @property
    def regions(self) -> Mapping[str, str]:
        """Part → region, of those that `REGIONS` names; none if it is not set.

        It is one name for all parts, or `app=<region> data=<region> workspace=<region>`.

        Raises:
            InvalidSetting: it is neither.
        """
        text = self.values.get("REGIONS", "")
        if "=" not in text:
            return dict.fromkeys(PARTS, region_name(text)) if text.strip() else {}
        pairs = [each.split("=") for each in text.split()]
        if any(len(pair) != 2 or pair[0] not in PARTS for pair in pairs):  # noqa: PLR2004 - part, region
            wanted = " ".join(f"{part}=<region>" for part in PARTS)
            raise InvalidSetting(f"app setting REGIONS: set it to {wanted}, or to one region")
        return {part: region_name(name) for part, name in pairs if name}

    def keep_days(self, name: str) -> int:
        """How many days a setting of `KEEP_DAYS` keeps what it is for.

        Raises:
            InvalidSetting: it is not a whole number of days, or too few.
        """
        default, fewest = KEEP_DAYS[name]
        value = self.values.get(name)
        if not value:
            return default
        if not value.isdecimal() or int(value) < fewest:
            raise InvalidSetting(
                f"app setting {name}: set it to a whole number of days, {fewest} or more; without "
                f"it they are {default}"
            )
        return int(value)

    @property
    def records_datastore(self) -> str:
        """The workspace's datastore on the records container; `RECORDS_DATASTORE` if it is set."""
        return self.values.get("RECORDS_DATASTORE") or "landfall"

    @property
    def cluster_identity(self) -> str | None:
        """The resource id of the user-assigned identity of clusters that the app creates.

        `CLUSTER_IDENTITY`; None if it is set to nothing, since all datastores have credentials.

        Raises:
            InvalidSetting: it is missing, or no such id.
        """
        value = self.explicit("CLUSTER_IDENTITY")
        if value and "/userassignedidentities/" not in value.lower():
            raise InvalidSetting(
                "app setting CLUSTER_IDENTITY: set it to the resource id of a user-assigned "
                "identity, /subscriptions/…/userAssignedIdentities/<name>"
            )
        return value or None

    @property
    def resource_manager_endpoint(self) -> str:
        """Azure Resource Manager, without a trailing slash; `RESOURCE_MANAGER_ENDPOINT` if set."""
        return (
            self.values.get("RESOURCE_MANAGER_ENDPOINT") or "https://management.azure.com"
        ).rstrip("/")

    @property
    def otlp_endpoint(self) -> str | None:
        """The OTLP receiver (http/protobuf), without a trailing slash; None if not configured.

        The setting is OpenTelemetry's `OTEL_EXPORTER_OTLP_ENDPOINT`.
        """
        return self.values.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").rstrip("/") or None

    @property
    def page_url(self) -> str | None:
        """The address of the operators' page, from the `WEBSITE_HOSTNAME` that the host sets."""
        host = self.values.get("WEBSITE_HOSTNAME", "")
        is_local = host.partition(":")[0] in ("127.0.0.1", "localhost")
        return f"{'http' if is_local else 'https'}://{host}/api/ui" if host else None

    @property
    def sends_telemetry(self) -> bool:
        """Whether the app's spans and metrics are exported."""
        return bool(self.otlp_endpoint or self.values.get("APPLICATIONINSIGHTS_CONNECTION_STRING"))

    @property
    def service_name(self) -> str:
        """The service name of spans and metrics: on Azure, the function app's name."""
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


def region_name(name: str) -> str:
    """A region's programmatic name (westeurope), from that or its display name (West Europe)."""
    return name.replace(" ", "").lower()
