"""The entities of the namespace, from the configuration file of Microsoft's Service Bus emulator.

The format is documented at
https://learn.microsoft.com/azure/service-bus-messaging/test-locally-with-service-bus-emulator;
each property has the meaning of the ARM property. A property that this broker does not implement
is an error, so that no program runs against half of a feature.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StringConstraints,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_pascal

from localazure import limits
from localazure.configuration_file import (
    ConfigurationModel,
    Step,
    error_at,
    read_configuration,
)

# Defaults and limits of Azure Service Bus, see
# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas and the ARM schema.
DEFAULT_LOCK = timedelta(minutes=1)
MAX_LOCK = timedelta(minutes=limits.SERVICE_BUS_LOCK.value)
DEFAULT_MAX_DELIVERY_COUNT = 10
DEFAULT_DUPLICATE_WINDOW = timedelta(minutes=10)
MAX_DUPLICATE_WINDOW = timedelta(days=7)
LARGE_MESSAGES_KEY = "MaxMessageSizeInKilobytes"

_MILLISECOND = timedelta(milliseconds=1)


def load(file: Path) -> NamespaceConfiguration:
    """Read the file. A missing file declares no entities.

    Raises:
        ConfigurationError: the file is not valid, or needs a feature that this broker lacks.
    """
    if not file.exists():
        return NamespaceConfiguration()
    (namespace,) = read_configuration(file, _Document).user_config.namespaces
    return namespace


class _Model(ConfigurationModel):
    model_config = ConfigDict(alias_generator=to_pascal)


def _duration(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("P"):
        return value
    raise ValueError("must be an ISO 8601 duration, such as PT1M")


def _at_least_a_millisecond(value: timedelta) -> timedelta:
    if value < _MILLISECOND:
        raise ValueError("must be at least 1 ms")
    return value


def _at_most(limit: timedelta) -> AfterValidator:
    def validator(value: timedelta) -> timedelta:
        if value > limit:
            raise ValueError(f"must be at most {limit.total_seconds():.0f} s")
        return value

    return AfterValidator(validator)


_Duration = Annotated[
    timedelta, BeforeValidator(_duration), AfterValidator(_at_least_a_millisecond)
]
_Name = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._~/-]{0,258}[A-Za-z0-9_])?$")
]


class Properties(_Model):
    """Properties of queues, topics and subscriptions."""

    default_message_time_to_live: _Duration | None = None

    @property
    def default_ttl_ms(self) -> int | None:
        """Time to live of a message that sets none; None means no limit."""
        ttl = self.default_message_time_to_live
        return None if ttl is None else ttl // _MILLISECOND

    @property
    def duplicate_window_ms(self) -> int | None:
        """None without duplicate detection."""
        return None


class TopicProperties(Properties):
    """Properties of topics and of queues."""

    max_message_size_in_kilobytes: (
        Annotated[StrictInt, Field(ge=1024, le=limits.SERVICE_BUS_LARGE_MESSAGE.value)] | None
    ) = None
    """Limit of a message, on the premium tier only."""
    requires_duplicate_detection: StrictBool = False
    duplicate_detection_history_time_window: Annotated[
        _Duration, _at_most(MAX_DUPLICATE_WINDOW)
    ] = DEFAULT_DUPLICATE_WINDOW

    @property
    def duplicate_window_ms(self) -> int | None:
        """None without duplicate detection."""
        window = self.duplicate_detection_history_time_window
        return window // _MILLISECOND if self.requires_duplicate_detection else None


class SubscriptionProperties(Properties):
    """Properties of subscriptions and of queues."""

    dead_lettering_on_message_expiration: StrictBool = False
    forward_dead_lettered_messages_to: str = ""
    forward_to: str = ""
    lock_duration: Annotated[_Duration, _at_most(MAX_LOCK)] = DEFAULT_LOCK
    max_delivery_count: Annotated[StrictInt, Field(ge=1)] = DEFAULT_MAX_DELIVERY_COUNT
    requires_session: StrictBool = False

    @field_validator("requires_session")
    @classmethod
    def _no_sessions(cls, value: bool) -> bool:  # noqa: FBT001 - pydantic passes it by position
        if value:
            raise ValueError("sessions are not covered by this broker")
        return value

    @property
    def lock_ms(self) -> int:
        """Duration of a lock on a message."""
        return self.lock_duration // _MILLISECOND


class QueueProperties(SubscriptionProperties, TopicProperties):
    """Properties of queues."""


class CorrelationFilter(_Model):
    """Equality conditions on a message. All must hold."""

    content_type: str | None = None
    correlation_id: str | None = None
    subject: str | None = Field(default=None, alias="Label")
    message_id: str | None = None
    reply_to: str | None = None
    reply_to_group_id: str | None = Field(default=None, alias="ReplyToSessionId")
    group_id: str | None = Field(default=None, alias="SessionId")
    to: str | None = None
    properties: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Expected values by application property."""

    @cached_property
    def system(self) -> dict[str, str]:
        """Expected values by field of the AMQP properties section."""
        fields = self.model_dump(exclude={"properties"})
        return {name: value for name, value in fields.items() if value}


class _RuleProperties(_Model):
    filter_type: str
    correlation_filter: CorrelationFilter = CorrelationFilter()
    sql_filter: Any = None
    action: Any = None

    @field_validator("filter_type")
    @classmethod
    def _is_correlation(cls, value: str) -> str:
        if value != "Correlation":
            raise ValueError("must be Correlation; SQL filters are not covered by this broker")
        return value

    @field_validator("action")
    @classmethod
    def _no_action(cls, _value: Any) -> Any:
        raise ValueError("rule actions are not covered by this broker")


class Rule(_Model):
    """A rule of a subscription."""

    name: _Name
    properties: _RuleProperties


class Claim(StrEnum):
    """The rights of a rule's key. `Manage` requires both others and allows nothing more here."""

    LISTEN = "Listen"
    SEND = "Send"
    MANAGE = "Manage"


class _AuthorizationRuleProperties(_Model):
    rights: Annotated[frozenset[Claim], Field(min_length=1)]

    @field_validator("rights")
    @classmethod
    def _manage_needs_the_others(cls, value: frozenset[Claim]) -> frozenset[Claim]:
        if Claim.MANAGE in value and value != frozenset(Claim):
            raise ValueError("must have Listen and Send in addition to Manage")
        return value


class AuthorizationRule(_Model):
    """A shared access policy, with its own key, of the namespace, a queue or a topic."""

    name: _Name
    properties: _AuthorizationRuleProperties

    @property
    def claims(self) -> frozenset[Claim]:
        """The rights of the rule. A link needs one of them."""
        return self.properties.rights


class Queue(_Model):
    """A queue."""

    name: _Name
    properties: QueueProperties = QueueProperties()
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    """An extension: Microsoft's emulator does not have this key at any level."""


class Subscription(_Model):
    """A subscription of a topic. It gets messages that match any rule, or all without rules."""

    name: _Name
    properties: SubscriptionProperties = SubscriptionProperties()
    rules: tuple[Rule, ...] = ()

    @cached_property
    def filters(self) -> tuple[CorrelationFilter, ...]:
        """The filters of the rules; one that matches all messages if there are no rules."""
        filters = tuple(rule.properties.correlation_filter for rule in self.rules)
        return filters or (CorrelationFilter(),)


class Topic(_Model):
    """A topic with its subscriptions."""

    name: _Name
    properties: TopicProperties = TopicProperties()
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    subscriptions: tuple[Subscription, ...] = ()

    def path_of(self, subscription: Subscription) -> str:
        """The path of a subscription, in the case of the file."""
        return f"{self.name}/Subscriptions/{subscription.name}"


class Sku(StrEnum):
    """The tier of a namespace. Basic is not covered."""

    STANDARD = "Standard"
    PREMIUM = "Premium"

    @property
    def batch_bytes(self) -> int:
        """Limit of a batch, and of a message unless the entity sets another."""
        if self is Sku.PREMIUM:
            return limits.SERVICE_BUS_PREMIUM_MESSAGE.value
        return limits.SERVICE_BUS_MESSAGE.value


class NamespaceConfiguration(_Model):
    """All entities of the file."""

    name: Any = None
    sku: Sku = Sku.STANDARD
    """An extension: Microsoft's emulator has neither tiers nor request rates."""
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    """In addition to the rule that every namespace has."""
    queues: tuple[Queue, ...] = ()
    topics: tuple[Topic, ...] = ()

    def message_bytes(self, entity: Queue | Topic | Subscription) -> int:
        """Limit of a message to an entity, in bytes."""
        properties = entity.properties
        if isinstance(properties, TopicProperties) and properties.max_message_size_in_kilobytes:
            return properties.max_message_size_in_kilobytes * 1024
        return self.sku.batch_bytes

    def entities(self) -> Iterator[tuple[str, Queue | Topic | Subscription]]:
        """All entities with their paths, in the case of the file."""
        for _, path, entity in self._located():
            yield path, entity

    def rules(self) -> Iterator[tuple[str, AuthorizationRule]]:
        """All authorization rules, each with its queue or topic (empty for the namespace)."""
        yield from (("", rule) for rule in self.authorization_rules)
        for entity in (*self.queues, *self.topics):
            yield from ((entity.name, rule) for rule in entity.authorization_rules)

    @model_validator(mode="after")
    def _valid_references(self) -> NamespaceConfiguration:
        """Check that paths are unique in any case, and that forwards have targets."""
        paths: set[str] = set()
        for location, path, _ in self._located():
            if path.lower() in paths:
                raise error_at((*location, "Name"), f"there are two entities {path!r}")
            paths.add(path.lower())
        destinations = {item.name.lower() for item in (*self.queues, *self.topics)}
        for location, path, entity in self._located():
            if isinstance(entity, Topic):
                continue
            properties = entity.properties
            for key, target in (
                ("ForwardTo", properties.forward_to),
                ("ForwardDeadLetteredMessagesTo", properties.forward_dead_lettered_messages_to),
            ):
                if target and target.lower() not in destinations:
                    raise error_at((*location, "Properties", key), "there is no such entity")
            if properties.forward_to.lower() == path.lower():
                raise error_at((*location, "Properties", "ForwardTo"), "is the entity itself")
        return self

    @model_validator(mode="after")
    def _large_messages_are_premium(self) -> NamespaceConfiguration:
        for location, _, entity in self._located():
            if self.sku is not Sku.PREMIUM and self.message_bytes(entity) > self.sku.batch_bytes:
                raise error_at(
                    (*location, "Properties", LARGE_MESSAGES_KEY), 'needs "Sku": "Premium"'
                )
        return self

    def _located(self) -> Iterator[tuple[Sequence[Step], str, Queue | Topic | Subscription]]:
        for number, queue in enumerate(self.queues):
            yield ("Queues", number), queue.name, queue
        for number, topic in enumerate(self.topics):
            location = ("Topics", number)
            yield location, topic.name, topic
            for index, item in enumerate(topic.subscriptions):
                yield (*location, "Subscriptions", index), topic.path_of(item), item


class _UserConfig(_Model):
    namespaces: tuple[NamespaceConfiguration]  # exactly one, as in Microsoft's emulator
    logging: Any = None


class _Document(_Model):
    user_config: _UserConfig
