"""The file `event-grid.json`: topics, and event subscriptions with the properties of ARM.

Source of the properties:
https://learn.microsoft.com/azure/templates/microsoft.eventgrid/eventsubscriptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar
from urllib.parse import quote

from pydantic import (
    Field,
    StrictInt,
    StringConstraints,
    model_validator,
)

from localazure.configuration_file import (
    ConfigurationModel,
    error_at,
    read_configuration,
    validate,
)
from localazure.errors import ConfigurationError
from localazure.eventgrid.filter_configuration import FilterConfiguration
from localazure.eventgrid.filters import Filter
from localazure.eventgrid.retry import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_TIME_TO_LIVE_MIN,
    MAX_TIME_TO_LIVE_MIN,
    SCHEDULE_S,
    RetryPolicy,
)
from localazure.eventgrid.schemas import Schema
from localazure.runtime.environment import AZURE_ML_TOPIC, STORAGE_TOPIC, Environment

K = TypeVar("K", bound=str)
P = TypeVar("P", bound=ConfigurationModel)

SYSTEM_TOPICS = (STORAGE_TOPIC, AZURE_ML_TOPIC)
# ARM's limits of batched delivery.
MAX_EVENTS_PER_BATCH = 5000
MAX_BATCH_KB = 1024
DEFAULT_BATCH_KB = 64


@dataclass(frozen=True)
class Topic:
    """A topic that events are published to.

    Attributes:
        resource_id: the `topic` of its events; empty for system topics, whose publishers set it to
            the resource that is the source of the event.
    """

    name: str
    input_schema: Schema
    resource_id: str


@dataclass(frozen=True)
class WebHook:
    """Delivery by POST to any URL, after a handshake."""

    url: str


@dataclass(frozen=True)
class AzureFunction:
    """Delivery to a function of the local Functions host; no handshake, as on Azure."""

    url: str


@dataclass(frozen=True)
class ServiceBusEntity:
    """Delivery as a message to a queue or topic of the local Service Bus."""

    name: str
    is_topic: bool


@dataclass(frozen=True)
class StorageQueueEntity:
    """Delivery as a message to a queue of the local storage.

    Attributes:
        time_to_live_s: of a message; -1 is without limit, None the service's default, a week.
    """

    name: str
    time_to_live_s: int | None


Destination = WebHook | AzureFunction | ServiceBusEntity | StorageQueueEntity


@dataclass(frozen=True, kw_only=True)
class Subscription:
    """One event subscription.

    Attributes:
        max_events_per_batch: 1 delivers each event by itself.
        dead_letter_container: None drops undeliverable events.
    """

    name: str
    topic: str
    destination: Destination
    schema: Schema
    filter: Filter
    retry: RetryPolicy
    max_events_per_batch: int = 1
    preferred_batch_bytes: int = DEFAULT_BATCH_KB * 1024
    dead_letter_container: str | None = None


@dataclass(frozen=True)
class Configuration:
    """Content of `event-grid.json`."""

    topics: dict[str, Topic]
    subscriptions: dict[str, Subscription]
    schedule_s: tuple[float, ...] | None


def load(environment: Environment) -> Configuration:
    """Read the environment's file. Without one there are the system topics only.

    Raises:
        ConfigurationError: the file is not valid.
    """
    path = environment.event_grid_config
    document = read_configuration(path, _Document) if path.exists() else _Document()
    topics = {name: Topic(name, Schema.EVENT_GRID, "") for name in SYSTEM_TOPICS}
    topics |= {item.name: item.topic(environment) for item in document.topics}
    schedule_s = document.retry_schedule_seconds
    return Configuration(
        topics,
        {
            item.name: item.subscription(topics, schedule_s, environment)
            for item in document.event_subscriptions
        },
        schedule_s,
    )


def parse_subscription(
    body: Mapping[str, Any], origin: str, configuration: Configuration, environment: Environment
) -> Subscription:
    """Read one subscription: `{"name", "topic", "properties"}`.

    Raises:
        ConfigurationError: the body is not valid, or there is no such topic. It names `origin`.
    """
    model = validate(body, _Subscription, origin=origin)
    if model.topic not in configuration.topics:
        raise ConfigurationError(f"{origin}: topic: {_no_topic(configuration.topics)}")
    return model.subscription(configuration.topics, configuration.schedule_s, environment)


# --- the file -------------------------------------------------------------------------------------

_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{3,64}$")]
_Text = Annotated[str, StringConstraints(min_length=1)]
_Number = Annotated[float, Field(strict=True)]


def _resource(collection: str) -> StringConstraints:
    return StringConstraints(pattern=rf"(^|/){collection}/[^/]+/*$")


def _last_segment(resource_id: str) -> str:
    return resource_id.rstrip("/").rpartition("/")[2]


class _Topic(ConfigurationModel):
    name: _Name
    input_schema: Schema = Schema.EVENT_GRID

    def topic(self, environment: Environment) -> Topic:
        group = f"{environment.subscription_id}/resourceGroups/{environment.resource_group}"
        resource_id = f"/subscriptions/{group}/providers/Microsoft.EventGrid/topics/{self.name}"
        return Topic(self.name, self.input_schema, resource_id)


class _Batching(ConfigurationModel):
    max_events_per_batch: Annotated[StrictInt, Field(ge=1, le=MAX_EVENTS_PER_BATCH)] = 1
    preferred_batch_size_in_kilobytes: Annotated[StrictInt, Field(ge=1, le=MAX_BATCH_KB)] = (
        DEFAULT_BATCH_KB
    )


class _WebHookProperties(_Batching):
    endpoint_url: Annotated[
        str, StringConstraints(pattern=r"^(https?://[^/?#]+|\{functions_url\})([/?#]|$)")
    ]


class _FunctionProperties(_Batching):
    resource_id: Annotated[str, _resource("functions")]


class _QueueProperties(ConfigurationModel):
    resource_id: Annotated[str, _resource("queues")]


class _TopicProperties(ConfigurationModel):
    resource_id: Annotated[str, _resource("topics")]


class _StorageQueueProperties(ConfigurationModel):
    resource_id: str = ""  # of the storage account: locally there is one
    queue_name: Annotated[
        str,
        StringConstraints(min_length=3, max_length=63, pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$"),
    ]
    queue_message_time_to_live_in_seconds: (
        Annotated[StrictInt, Field(ge=-1, le=2**31 - 1)] | None
    ) = None


class _Endpoint(ConfigurationModel, Generic[K, P]):
    endpoint_type: K
    properties: P


_EndpointModel = (
    _Endpoint[Literal["WebHook"], _WebHookProperties]
    | _Endpoint[Literal["AzureFunction"], _FunctionProperties]
    | _Endpoint[Literal["ServiceBusQueue"], _QueueProperties]
    | _Endpoint[Literal["ServiceBusTopic"], _TopicProperties]
    | _Endpoint[Literal["StorageQueue"], _StorageQueueProperties]
)


def _destination(properties: Any, environment: Environment) -> Destination:
    key = quote(environment.keys.functions_system)
    match properties:
        case _WebHookProperties(endpoint_url=url):
            url = url.replace("{functions_url}", environment.functions_url)
            return WebHook(url.replace("{functions_system_key}", key))
        case _FunctionProperties(resource_id=resource_id):
            return AzureFunction(
                f"{environment.functions_url}/runtime/webhooks/EventGrid"
                f"?functionName={quote(_last_segment(resource_id))}&code={key}"
            )
        case _StorageQueueProperties():
            time_to_live_s = properties.queue_message_time_to_live_in_seconds
            return StorageQueueEntity(properties.queue_name, time_to_live_s)
        case _:
            is_topic = isinstance(properties, _TopicProperties)
            return ServiceBusEntity(_last_segment(properties.resource_id), is_topic=is_topic)


class _BlobProperties(ConfigurationModel):
    resource_id: str = ""  # of the storage account: locally there is one
    blob_container_name: _Text


class _RetryPolicy(ConfigurationModel):
    max_delivery_attempts: Annotated[StrictInt, Field(ge=1, le=DEFAULT_MAX_ATTEMPTS)] = (
        DEFAULT_MAX_ATTEMPTS
    )
    event_time_to_live_in_minutes: Annotated[StrictInt, Field(ge=1, le=MAX_TIME_TO_LIVE_MIN)] = (
        DEFAULT_TIME_TO_LIVE_MIN
    )


class _SubscriptionProperties(ConfigurationModel):
    destination: Annotated[_EndpointModel, Field(discriminator="endpoint_type")]
    filter: FilterConfiguration = FilterConfiguration()
    retry_policy: _RetryPolicy = _RetryPolicy()
    dead_letter_destination: _Endpoint[Literal["StorageBlob"], _BlobProperties] | None = None
    event_delivery_schema: Schema | None = None
    labels: Any = None


class _Subscription(ConfigurationModel):
    name: _Name
    topic: str
    properties: _SubscriptionProperties

    def subscription(
        self,
        topics: Mapping[str, Topic],
        schedule_s: Sequence[float] | None,
        environment: Environment,
    ) -> Subscription:
        properties, retry = self.properties, self.properties.retry_policy
        target = properties.destination.properties
        batching = target if isinstance(target, _Batching) else _Batching()
        dead_letters = properties.dead_letter_destination
        return Subscription(
            name=self.name,
            topic=self.topic,
            destination=_destination(target, environment),
            schema=properties.event_delivery_schema or topics[self.topic].input_schema,
            filter=properties.filter.filter(),
            retry=RetryPolicy(
                max_attempts=retry.max_delivery_attempts,
                time_to_live_s=retry.event_time_to_live_in_minutes * 60,
                schedule_s=SCHEDULE_S if schedule_s is None else schedule_s,
                scaled=schedule_s is not None,
            ),
            max_events_per_batch=batching.max_events_per_batch,
            preferred_batch_bytes=batching.preferred_batch_size_in_kilobytes * 1024,
            dead_letter_container=(
                None if dead_letters is None else dead_letters.properties.blob_container_name
            ),
        )


class _Document(ConfigurationModel):
    topics: tuple[_Topic, ...] = ()
    event_subscriptions: tuple[_Subscription, ...] = ()
    retry_schedule_seconds: (
        Annotated[tuple[Annotated[_Number, Field(ge=0)], ...], Field(min_length=1)] | None
    ) = None

    @model_validator(mode="after")
    def _unique_names(self) -> _Document:
        topics: set[str] = set(SYSTEM_TOPICS)
        for number, topic in enumerate(self.topics):
            if topic.name in topics:
                raise error_at(("topics", number, "name"), "this name is taken")
            topics.add(topic.name)
        subscriptions: set[str] = set()
        for number, subscription in enumerate(self.event_subscriptions):
            location = ("eventSubscriptions", number)
            if subscription.name in subscriptions:
                raise error_at((*location, "name"), "this name is taken")
            if subscription.topic not in topics:
                raise error_at((*location, "topic"), _no_topic(topics))
            subscriptions.add(subscription.name)
        return self


def _no_topic(known: Iterable[str]) -> str:
    return f"must be one of {', '.join(sorted(known))}"
