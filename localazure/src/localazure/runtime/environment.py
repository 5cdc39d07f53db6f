"""The settings that all parts share.

The supervisor writes the environment to `<state>/environment.json` before it starts the parts, and
each part's process reads it. Ports and keys are drawn once per state folder, so that URLs and
connection strings stay valid after a restart.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, Self, get_args, get_type_hints

from localazure.processes.atomic_file import write_atomically
from localazure.processes.ports import LOOPBACK, free_address, free_ports
from localazure.storage_client.endpoint import Endpoint

STORAGE_ACCOUNT = "devstoreaccount1"
"""The account of all storage emulators, which exists in addition to those of `storage.json`."""

# The key of all storage emulators; published, so it is not a secret.
# https://learn.microsoft.com/azure/storage/common/storage-use-azurite
STORAGE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
SERVICE_BUS_KEY_NAME = "RootManageSharedAccessKey"
AMQPS_PORT = 5671
"""The port of AMQP over TLS (https://www.iana.org/assignments/service-names-port-numbers). With an
identity, the Service Bus SDKs can connect to no other port."""

WORKER = "LOCALAZURE_WORKER"
"""App setting: whose code runs the functions, `localazure` or, from Python 3.13 on, `azure`."""
RUN_ACTIVITIES_TWICE = "LOCALAZURE_RUN_ACTIVITIES_TWICE"
"""App setting: run each activity that succeeded again, as Azure may do after a lost worker."""

ENGINE = "LOCALAZURE_ENGINE"
"""App setting of one of several hosts: the Unix socket of the engine of their task hub."""

STORAGE_TOPIC = "storage"
AZURE_ML_TOPIC = "azure-ml"


class Listener(NamedTuple):
    """A listener of a part."""

    offset: int
    """The fixed offset of its port from `--port-base`."""
    part: str


@dataclass(frozen=True, kw_only=True)
class Ports:
    """One loopback TCP port per listener."""

    functions: Annotated[int, Listener(1, "functions")]
    blob: Annotated[int, Listener(10, "storage")]
    queue: Annotated[int, Listener(11, "storage")]
    table: Annotated[int, Listener(12, "storage")]
    azurite_blob: Annotated[int, Listener(13, "storage")]
    azurite_queue: Annotated[int, Listener(14, "storage")]
    azurite_table: Annotated[int, Listener(15, "storage")]
    blob_tls: Annotated[int, Listener(16, "storage")]
    queue_tls: Annotated[int, Listener(17, "storage")]
    table_tls: Annotated[int, Listener(18, "storage")]
    blob_by_host: Annotated[int, Listener(19, "storage")]
    service_bus: Annotated[int, Listener(20, "servicebus")]
    event_grid: Annotated[int, Listener(30, "eventgrid")]
    event_grid_tls: Annotated[int, Listener(31, "eventgrid")]
    azure_ml: Annotated[int, Listener(40, "machinelearning")]
    identity: Annotated[int, Listener(41, "machinelearning")]

    @classmethod
    def from_base(cls, base: int) -> Self:
        """Return all ports, at fixed offsets from `base` (7070 gives functions func's 7071)."""
        return cls(**{name: base + offset for name, (offset, _) in LISTENERS.items()})

    @classmethod
    def draw(cls) -> Self:
        """Return ports that no process listens on; see `localazure.processes.ports.free_ports`."""
        return cls(**dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True)))


LISTENERS: Final[Mapping[str, Listener]] = {
    name: get_args(hint)[1] for name, hint in get_type_hints(Ports, include_extras=True).items()
}


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The secrets of one state folder."""

    functions_master: str
    functions_host: str
    functions_system: str
    event_grid: str
    """For the administration of subscriptions. Those of topics are derived from it."""
    service_bus: str
    identity_header: str
    storage: str

    @classmethod
    def draw(cls) -> Self:
        """Return new random keys, 256 bits each, in base64 where the service's SDK decodes them."""

        def key() -> str:
            return base64.b64encode(secrets.token_bytes(32)).decode()

        return cls(
            functions_master=secrets.token_urlsafe(32),
            functions_host=secrets.token_urlsafe(32),
            functions_system=secrets.token_urlsafe(32),
            event_grid=key(),
            service_bus=key(),
            identity_header=secrets.token_urlsafe(32),
            storage=key(),
        )


def has_app(folder: Path) -> bool:
    """Whether a folder has a Functions app."""
    return any((folder / name).exists() for name in ("host.json", "function_app.py"))


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The state folder, ports, keys and app of one localazure."""

    state: Path
    app: Path
    ports: Ports
    service_bus_host: str
    """The loopback address of Service Bus over TLS. Its port is fixed, so each state folder has its
    own address."""
    keys: Keys
    service_bus_config: Path
    event_grid_config: Path
    azure_ml_config: Path
    storage_config: Path
    scopes_config: Path
    app_settings: dict[str, str]
    """Environment variables that the Functions host sets before it imports the app."""
    subscription_id: str = "00000000-0000-0000-0000-00000000a2e5"
    resource_group: str = "local"
    workspace: str = "local"
    location: str = "localhost"

    @classmethod
    def draw(
        cls, state: Path, *, app: Path, config: Path | None = None, ports: Ports | None = None
    ) -> Self:
        """Return a new environment, with new keys.

        Args:
            state: the folder for all state.
            app: the app's folder.
            config: the folder with the parts' files; a missing file declares nothing. By default
                `<app>/infra/local`.
            ports: by default, free ports, and a free address for Service Bus over TLS.
        """
        files = config or app / "infra" / "local"
        return cls(
            state=state,
            app=app,
            ports=ports or Ports.draw(),
            service_bus_host=LOOPBACK if ports else free_address(AMQPS_PORT),
            keys=Keys.draw(),
            service_bus_config=files / "Config.json",
            event_grid_config=files / "event-grid.json",
            azure_ml_config=files / "azure-ml.json",
            storage_config=files / "storage.json",
            scopes_config=files / "scopes.json",
            app_settings={},
        )

    def part_folder(self, part: str) -> Path:
        """Return the folder for a part's state; create it if missing."""
        folder = self.state / part
        folder.mkdir(0o700, parents=True, exist_ok=True)
        return folder

    def resource_id(self, path: str) -> str:
        """Return the ARM id of a resource such as `Microsoft.Storage/storageAccounts/NAME`."""
        return (
            f"/subscriptions/{self.subscription_id}/resourceGroups/{self.resource_group}"
            f"/providers/{path}"
        )

    @property
    def functions_url(self) -> str:
        """Base URL of the Functions host, without a trailing slash."""
        return f"http://{LOOPBACK}:{self.ports.functions}"

    def storage_key(self, account: str = STORAGE_ACCOUNT) -> str:
        """Return a storage account's key in base64, derived from the state folder's secret."""
        if account == STORAGE_ACCOUNT:
            return STORAGE_KEY
        digest = hmac.digest(self.keys.storage.encode(), account.encode(), hashlib.sha512)
        return base64.b64encode(digest).decode()

    def storage_connection_string(
        self, account: str = STORAGE_ACCOUNT, *, direct: bool = False
    ) -> str:
        """Return a connection string for the storage SDKs.

        Args:
            account: an account of `storage.json`, or that of all emulators.
            direct: whether to bypass the proxy and use Azurite: without events, roles and limits of
                the account's kind.
        """
        ports = self.ports
        blob, queue, table = (
            (ports.azurite_blob, ports.azurite_queue, ports.azurite_table)
            if direct
            else (ports.blob, ports.queue, ports.table)
        )
        return (
            f"DefaultEndpointsProtocol=http;AccountName={account};"
            f"AccountKey={self.storage_key(account)};"
            f"BlobEndpoint=http://{LOOPBACK}:{blob}/{account};"
            f"QueueEndpoint=http://{LOOPBACK}:{queue}/{account};"
            f"TableEndpoint=http://{LOOPBACK}:{table}/{account};"
        )

    def blob_endpoint(
        self, account: str, *, is_identity: bool = False, direct: bool = False
    ) -> Endpoint:
        """Return the Blob endpoint of an account, for localazure's own requests.

        Args:
            account: an account of `storage.json`, or that of all emulators.
            is_identity: whether a token is sent, over TLS, instead of the key.
            direct: whether to bypass the proxy and use Azurite: without events, roles and limits of
                the account's kind.
        """
        if is_identity:
            return Endpoint(url=self.blob_tls_endpoint(account), account=account)
        port = self.ports.azurite_blob if direct else self.ports.blob
        url = f"http://{LOOPBACK}:{port}/{account}"
        return Endpoint(url=url, account=account, key=self.storage_key(account))

    @property
    def service_bus_connection_string(self) -> str:
        """Return a connection string for azure-servicebus, in the form of Microsoft's emulator."""
        return self.service_bus_connection_string_of(SERVICE_BUS_KEY_NAME)

    def service_bus_connection_string_of(self, rule: str, entity: str = "") -> str:
        """Return a connection string with an authorization rule of the namespace or an entity."""
        return (
            f"Endpoint=sb://{LOOPBACK}:{self.ports.service_bus};"
            f"SharedAccessKeyName={rule};SharedAccessKey={self.service_bus_key(rule, entity)};"
            f"{f'EntityPath={entity};' if entity else ''}UseDevelopmentEmulator=true;"
        )

    def service_bus_key(self, rule: str, entity: str = "") -> str:
        """Return the key of an authorization rule; random for the namespace's default rule."""
        if (rule, entity) == (SERVICE_BUS_KEY_NAME, ""):
            return self.keys.service_bus
        text = f"{entity.lower()}\n{rule}" if entity else rule
        digest = hmac.digest(self.keys.service_bus.encode(), text.encode(), hashlib.sha256)
        return base64.b64encode(digest).decode()

    def event_grid_keys(self, topic: str) -> tuple[str, str]:
        """Return both access keys of a topic in base64, derived from the state folder's secret."""
        primary, secondary = (
            hmac.digest(self.keys.event_grid.encode(), f"{name}\n{topic}".encode(), hashlib.sha256)
            for name in ("key1", "key2")
        )
        return base64.b64encode(primary).decode(), base64.b64encode(secondary).decode()

    def blob_tls_endpoint(self, account: str) -> str:
        """Return the URL of an account's blob service for tokens, which are sent over TLS only."""
        return f"https://localhost:{self.ports.blob_tls}/{account}"

    def queue_tls_endpoint(self, account: str) -> str:
        """Return the URL of an account's queue service for tokens."""
        return f"https://localhost:{self.ports.queue_tls}/{account}"

    def table_tls_endpoint(self, account: str) -> str:
        """Return the URL of an account's table service for tokens."""
        return f"https://localhost:{self.ports.table_tls}/{account}"

    def topic_tls_endpoint(self, topic: str) -> str:
        """Return the publish URL of an Event Grid topic for tokens."""
        return f"https://localhost:{self.ports.event_grid_tls}/topics/{topic}/api/events"

    def topic_endpoint(self, topic: str) -> str:
        """Return the publish URL of an Event Grid topic, for EventGridPublisherClient."""
        return f"http://{LOOPBACK}:{self.ports.event_grid}/topics/{topic}/api/events"

    @property
    def azure_ml_url(self) -> str:
        """Base URL of the ARM endpoint, without a trailing slash."""
        return f"https://localhost:{self.ports.azure_ml}"

    @property
    def ca(self) -> Path:
        """PEM file with this state folder's CA."""
        return self.state / "ca" / "ca.pem"

    @property
    def ca_bundle(self) -> Path:
        """PEM file with certifi's roots and this state folder's CA."""
        return self.state / "ca" / "bundle.pem"

    def save(self) -> None:
        """Write to `<state>/environment.json`, readable by its owner only, because it has keys."""
        self.state.mkdir(parents=True, exist_ok=True)
        text = json.dumps(dataclasses.asdict(self), indent=2, default=str)
        write_atomically(self.state / "environment.json", text)

    @classmethod
    def load(cls, state: Path) -> Self:
        """Read the file that `save` wrote.

        Raises:
            FileNotFoundError: the state folder has no environment.
        """
        document: dict[str, Any] = json.loads((state / "environment.json").read_text())
        parsed: dict[str, Any] = {
            field.name: Path(document[field.name])
            for field in dataclasses.fields(cls)
            if field.type == "Path"
        }
        parsed["ports"] = Ports(**{name: document["ports"][name] for name in LISTENERS})
        parsed["keys"] = Keys(**document["keys"])
        return cls(**{**document, **parsed})
