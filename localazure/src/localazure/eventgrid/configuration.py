"""The file `event-grid.json`: topics, and event subscriptions with the properties of ARM.

Source of the properties:
https://learn.microsoft.com/azure/templates/microsoft.eventgrid/eventsubscriptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from localazure.configuration_file import (
    ConfigurationModel,
    error_at,
    read_configuration,
    validate,
)
from localazure.errors import ConfigurationError
from localazure.eventgrid.destinations import (
    SERVICE_BUS_BATCHING,
    Batching,
    DeadLetterDestination,
    Destination,
    DestinationByIdentity,
    ServiceBusDestination,
)
from localazure.eventgrid.filters import Filter
from localazure.eventgrid.retry import SCHEDULE_SECONDS, RetryPolicy, RetrySchedule
from localazure.eventgrid.schemas import Schema
from localazure.runtime.environment import AZURE_ML_TOPIC, STORAGE_TOPIC, Environment

SYSTEM_TOPICS = (STORAGE_TOPIC, AZURE_ML_TOPIC)

_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{3,64}$")]
_DelayS = Annotated[float, Field(strict=True, ge=0)]


class Topic(ConfigurationModel):
    """A topic."""

    name: _Name
    input_schema: Schema = Schema.EVENT_GRID


class _TopicIdentity(ConfigurationModel):
    type: Literal["SystemAssigned"]


class _DeliveryByIdentity(ConfigurationModel):
    identity: _TopicIdentity
    destination: DestinationByIdentity


class _DeadLettersByIdentity(ConfigurationModel):
    identity: _TopicIdentity
    dead_letter_destination: DeadLetterDestination


class _SubscriptionProperties(ConfigurationModel):
    destination_by_key: Destination | None = Field(default=None, alias="destination")
    delivery_with_resource_identity: _DeliveryByIdentity | None = None
    filter: Filter = Filter()
    retry_policy: RetryPolicy = RetryPolicy()
    dead_letter_destination: DeadLetterDestination | None = None
    dead_letter_with_resource_identity: _DeadLettersByIdentity | None = None
    event_delivery_schema: Schema | None = None
    labels: Any = None

    @model_validator(mode="after")
    def _one_destination(self) -> _SubscriptionProperties:
        if (self.destination_by_key is None) == (self.delivery_with_resource_identity is None):
            raise error_at(
                ("destination",), "give one: this or deliveryWithResourceIdentity.destination"
            )
        return self

    @property
    def destination(self) -> Destination:
        """The destination of events."""
        by_identity = self.delivery_with_resource_identity
        target = self.destination_by_key if by_identity is None else by_identity.destination
        assert target is not None, "it is validated"
        return target

    @property
    def dead_letters(self) -> DeadLetterDestination | None:
        """The destination of undeliverable events, if any."""
        by_identity = self.dead_letter_with_resource_identity
        if by_identity is None:
            return self.dead_letter_destination
        return by_identity.dead_letter_destination


class Subscription(ConfigurationModel):
    """One event subscription."""

    name: _Name
    topic: str
    properties: _SubscriptionProperties

    def batching(self, attempts: int) -> Batching:
        """The limits of a delivery request after this number of attempts."""
        destination = self.properties.destination.properties
        if isinstance(destination, ServiceBusDestination):
            # Service Bus accepts all messages of a transfer or none. After a failure each is sent
            # alone, so that a rejected message does not block the others.
            return SERVICE_BUS_BATCHING if attempts == 0 else Batching()
        return destination if isinstance(destination, Batching) else Batching()

    @property
    def delivering_identity(self) -> str | None:
        """The topic whose identity authenticates deliveries; None if a key does."""
        return None if self.properties.delivery_with_resource_identity is None else self.topic

    @property
    def dead_letters_identity(self) -> str | None:
        """The topic whose identity writes dead letters; None if a key does."""
        return None if self.properties.dead_letter_with_resource_identity is None else self.topic


class Configuration(ConfigurationModel):
    """Content of `event-grid.json`."""

    topics: tuple[Topic, ...] = ()
    event_subscriptions: tuple[Subscription, ...] = ()
    retry_schedule_seconds: Annotated[tuple[_DelayS, ...], Field(min_length=1)] | None = None

    @cached_property
    def topics_by_name(self) -> Mapping[str, Topic]:
        """All topics, the system topics included."""
        system = [Topic(name=name) for name in SYSTEM_TOPICS]
        return {topic.name: topic for topic in (*system, *self.topics)}

    @property
    def retry_schedule(self) -> RetrySchedule:
        """The delays between attempts."""
        delays_seconds = self.retry_schedule_seconds
        return RetrySchedule(delays_seconds or SCHEDULE_SECONDS, scaled=delays_seconds is not None)

    def delivery_schema(self, subscription: Subscription) -> Schema:
        """The schema in which events are delivered."""
        topic = self.topics_by_name[subscription.topic]
        return subscription.properties.event_delivery_schema or topic.input_schema

    @model_validator(mode="after")
    def _unique_names(self) -> Configuration:
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


def load(environment: Environment) -> Configuration:
    """Read the environment's file. Without a file there are only the system topics.

    Raises:
        ConfigurationError: the file is not valid.
    """
    path = environment.event_grid_config
    return read_configuration(path, Configuration) if path.exists() else Configuration()


def parse_subscription(
    body: Mapping[str, Any], origin: str, configuration: Configuration
) -> Subscription:
    """Read one subscription: `{"name", "topic", "properties"}`.

    Raises:
        ConfigurationError: the body is not valid, or there is no such topic. It names `origin`.
    """
    subscription = validate(body, Subscription, origin=origin)
    if subscription.topic not in configuration.topics_by_name:
        raise ConfigurationError(f"{origin}: topic: {_no_topic(configuration.topics_by_name)}")
    return subscription


def _no_topic(declared: Iterable[str]) -> str:
    return f"must be one of {', '.join(sorted(declared))}"
