"""Destinations of event subscriptions, in the form of ARM and `event-grid.json`."""

from __future__ import annotations

from typing import Annotated, Generic, Literal, TypeVar
from urllib.parse import quote

from pydantic import Field, StrictInt, StringConstraints

from localazure.configuration_file import ConfigurationModel
from localazure.runtime.environment import STORAGE_ACCOUNT, Environment

K = TypeVar("K", bound=str)
P = TypeVar("P", bound=ConfigurationModel)

# ARM's limits of batched delivery.
MAX_EVENTS_PER_BATCH = 5000
MAX_BATCH_KB = 1024
DEFAULT_BATCH_KB = 64


def _resource(collection: str) -> StringConstraints:
    return StringConstraints(pattern=rf"(^|/){collection}/[^/]+/*$")


def _last_segment(resource_id: str) -> str:
    return resource_id.rstrip("/").rpartition("/")[2]


class Batching(ConfigurationModel):
    """The limits of one request; by default each event is delivered alone."""

    max_events_per_batch: Annotated[StrictInt, Field(ge=1, le=MAX_EVENTS_PER_BATCH)] = 1
    preferred_batch_size_in_kilobytes: Annotated[StrictInt, Field(ge=1, le=MAX_BATCH_KB)] = (
        DEFAULT_BATCH_KB
    )


class WebHookDestination(Batching):
    """Delivery by POST to any URL, after a handshake."""

    endpoint_url: Annotated[
        str, StringConstraints(pattern=r"^(https?://[^/?#]+|\{functions_url\})([/?#]|$)")
    ]

    def url(self, environment: Environment) -> str:
        """The URL with its placeholders filled in."""
        key = quote(environment.keys.functions_system)
        url = self.endpoint_url.replace("{functions_url}", environment.functions_url)
        return url.replace("{functions_system_key}", key)


class FunctionDestination(Batching):
    """Delivery to a function of the local Functions host; no handshake, as on Azure."""

    resource_id: Annotated[str, _resource("functions")]

    def url(self, environment: Environment) -> str:
        """The function's address on the local Functions host."""
        return (
            f"{environment.functions_url}/runtime/webhooks/EventGrid"
            f"?functionName={quote(_last_segment(self.resource_id))}"
            f"&code={quote(environment.keys.functions_system)}"
        )


# One transfer of separate messages. 100 messages with 128 KB in all, and their properties, stay
# below the 256 KB that Service Bus accepts in one transfer.
SERVICE_BUS_BATCHING = Batching(max_events_per_batch=100, preferred_batch_size_in_kilobytes=128)


class ServiceBusDestination(ConfigurationModel):
    """Delivery as a message to an entity of the local Service Bus."""

    resource_id: str

    @property
    def name(self) -> str:
        """Name of the entity."""
        return _last_segment(self.resource_id)


class ServiceBusQueueDestination(ServiceBusDestination):
    """Delivery as a message to a queue."""

    resource_id: Annotated[str, _resource("queues")]


class ServiceBusTopicDestination(ServiceBusDestination):
    """Delivery as a message to a topic."""

    resource_id: Annotated[str, _resource("topics")]


class _OfStorage(ConfigurationModel):
    resource_id: str = ""
    """ARM id of the storage account; the default account if empty."""

    @property
    def account(self) -> str:
        """Name of the storage account."""
        return _last_segment(self.resource_id) or STORAGE_ACCOUNT


class StorageQueueDestination(_OfStorage):
    """Delivery as a message to a queue of the local storage."""

    queue_name: Annotated[
        str,
        StringConstraints(min_length=3, max_length=63, pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$"),
    ]
    queue_message_time_to_live_in_seconds: (
        Annotated[StrictInt, Field(ge=-1, le=2**31 - 1)] | None
    ) = None
    """-1 means no limit, None the service's default of a week."""


class StorageBlobDestination(_OfStorage):
    """A container for dead letters."""

    blob_container_name: Annotated[str, StringConstraints(min_length=1)]


class Endpoint(ConfigurationModel, Generic[K, P]):
    """A destination with its type, in ARM's form."""

    endpoint_type: K
    properties: P


Destination = Annotated[
    Endpoint[Literal["WebHook"], WebHookDestination]
    | Endpoint[Literal["AzureFunction"], FunctionDestination]
    | Endpoint[Literal["ServiceBusQueue"], ServiceBusQueueDestination]
    | Endpoint[Literal["ServiceBusTopic"], ServiceBusTopicDestination]
    | Endpoint[Literal["StorageQueue"], StorageQueueDestination],
    Field(discriminator="endpoint_type"),
]
DestinationByIdentity = Annotated[
    Endpoint[Literal["ServiceBusQueue"], ServiceBusQueueDestination]
    | Endpoint[Literal["ServiceBusTopic"], ServiceBusTopicDestination],
    Field(discriminator="endpoint_type"),
]
"""A destination that a topic's identity may deliver to. Azure's other ones are not covered."""
DeadLetterDestination = Endpoint[Literal["StorageBlob"], StorageBlobDestination]
