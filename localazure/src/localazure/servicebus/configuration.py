"""The entities of the namespace, from the configuration file of Microsoft's Service Bus emulator.

The format is documented at
https://learn.microsoft.com/azure/service-bus-messaging/test-locally-with-service-bus-emulator;
the meaning of each property is that of the ARM resource. Properties that this broker does not
implement are errors, so that no program runs against half of a feature.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
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

from localazure.configuration_file import (
    ConfigurationModel,
    Step,
    error_at,
    read_configuration,
)

# Defaults and limits of Azure Service Bus, see
# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas and the ARM schema.
DEFAULT_LOCK = timedelta(minutes=1)
MAX_LOCK = timedelta(minutes=5)
DEFAULT_MAX_DELIVERY_COUNT = 10
DEFAULT_DUPLICATE_WINDOW = timedelta(minutes=10)
MAX_DUPLICATE_WINDOW = timedelta(days=7)
MAX_FORWARD_HOPS = 4

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, kw_only=True)
class CorrelationFilter:
    """Equality conditions on a message, all of which must hold."""

    system: dict[str, str] = field(default_factory=dict[str, str])
    """Field of the AMQP properties section to expected value."""
    application: dict[str, Any] = field(default_factory=dict[str, Any])
    """Application property to expected value."""


@dataclass(frozen=True, kw_only=True)
class QueueConfig:
    """A queue or a subscription. Durations in ms."""

    path: str
    """`queue` or `topic/Subscriptions/name`, in the case of the file."""
    lock_ms: int = DEFAULT_LOCK // _MILLISECOND
    max_delivery_count: int = DEFAULT_MAX_DELIVERY_COUNT
    default_ttl_ms: int | None = None
    dead_letters_expired: bool = False
    duplicate_window_ms: int | None = None
    """None without duplicate detection."""
    forward_to: str | None = None
    forward_dead_letters_to: str | None = None
    rules: tuple[CorrelationFilter, ...] = (CorrelationFilter(),)
    """Of a subscription: it gets messages that match any rule. The default rule matches all."""


@dataclass(frozen=True, kw_only=True)
class TopicConfig:
    """A topic with its subscriptions."""

    path: str
    subscriptions: tuple[QueueConfig, ...]
    default_ttl_ms: int | None = None
    duplicate_window_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class NamespaceConfig:
    """All entities of the file."""

    queues: tuple[QueueConfig, ...] = ()
    topics: tuple[TopicConfig, ...] = ()


def load(file: Path) -> NamespaceConfig:
    """Read the file. A missing file declares no entities.

    Raises:
        ConfigurationError: the file is not valid, or needs a feature that this broker lacks.
    """
    if not file.exists():
        return NamespaceConfig()
    (namespace,) = read_configuration(file, _Document).user_config.namespaces
    return NamespaceConfig(
        queues=tuple(item.config(item.name) for item in namespace.queues),
        topics=tuple(item.config() for item in namespace.topics),
    )


# --- the file -------------------------------------------------------------------------------------


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


class _Properties(_Model):
    default_message_time_to_live: _Duration | None = None

    @property
    def default_ttl_ms(self) -> int | None:
        ttl = self.default_message_time_to_live
        return None if ttl is None else ttl // _MILLISECOND

    @property
    def duplicate_window_ms(self) -> int | None:
        return None


class _DuplicateDetection(_Properties):
    requires_duplicate_detection: StrictBool = False
    duplicate_detection_history_time_window: Annotated[
        _Duration, _at_most(MAX_DUPLICATE_WINDOW)
    ] = DEFAULT_DUPLICATE_WINDOW

    @property
    def duplicate_window_ms(self) -> int | None:
        window = self.duplicate_detection_history_time_window
        return window // _MILLISECOND if self.requires_duplicate_detection else None


class _SubscriptionProperties(_Properties):
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

    def config(self, path: str, rules: tuple[CorrelationFilter, ...]) -> QueueConfig:
        return QueueConfig(
            path=path,
            lock_ms=self.lock_duration // _MILLISECOND,
            max_delivery_count=self.max_delivery_count,
            default_ttl_ms=self.default_ttl_ms,
            dead_letters_expired=self.dead_lettering_on_message_expiration,
            duplicate_window_ms=self.duplicate_window_ms,
            forward_to=self.forward_to or None,
            forward_dead_letters_to=self.forward_dead_lettered_messages_to or None,
            rules=rules,
        )


class _QueueProperties(_SubscriptionProperties, _DuplicateDetection):
    pass


class _CorrelationFilter(_Model):
    content_type: str | None = None
    correlation_id: str | None = None
    subject: str | None = Field(default=None, alias="Label")
    message_id: str | None = None
    reply_to: str | None = None
    reply_to_group_id: str | None = Field(default=None, alias="ReplyToSessionId")
    group_id: str | None = Field(default=None, alias="SessionId")
    to: str | None = None
    properties: dict[str, Any] = Field(default_factory=dict[str, Any])


class _RuleProperties(_Model):
    filter_type: str
    correlation_filter: _CorrelationFilter = Field(default_factory=_CorrelationFilter)
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


class _Rule(_Model):
    name: _Name
    properties: _RuleProperties

    def config(self) -> CorrelationFilter:
        conditions = self.properties.correlation_filter
        system = conditions.model_dump(exclude={"properties"}, exclude_none=True)
        return CorrelationFilter(
            system={name: value for name, value in system.items() if value},
            application=conditions.properties,
        )


class _Queue(_Model):
    name: _Name
    properties: _QueueProperties = _QueueProperties()

    def config(self, path: str) -> QueueConfig:
        return self.properties.config(path, (CorrelationFilter(),))


class _Subscription(_Model):
    name: _Name
    properties: _SubscriptionProperties = _SubscriptionProperties()
    rules: tuple[_Rule, ...] = ()

    def config(self, path: str) -> QueueConfig:
        rules = tuple(rule.config() for rule in self.rules)
        return self.properties.config(path, rules or (CorrelationFilter(),))


class _Topic(_Model):
    name: _Name
    properties: _DuplicateDetection = _DuplicateDetection()
    subscriptions: tuple[_Subscription, ...] = ()

    def config(self) -> TopicConfig:
        return TopicConfig(
            path=self.name,
            subscriptions=tuple(
                item.config(f"{self.name}/Subscriptions/{item.name}") for item in self.subscriptions
            ),
            default_ttl_ms=self.properties.default_ttl_ms,
            duplicate_window_ms=self.properties.duplicate_window_ms,
        )


class _Namespace(_Model):
    name: Any = None
    queues: tuple[_Queue, ...] = ()
    topics: tuple[_Topic, ...] = ()

    @model_validator(mode="after")
    def _valid_references(self) -> _Namespace:
        """Paths are unique in any case; messages are forwarded to entities, not in circles."""
        paths: set[str] = set()
        for location, path, _ in self._entities():
            if path.lower() in paths:
                raise error_at((*location, "Name"), f"there are two entities {path!r}")
            paths.add(path.lower())
        forwards = {item.name.lower(): item.properties.forward_to.lower() for item in self.queues}
        destinations = {item.name.lower() for item in (*self.queues, *self.topics)}
        for location, _, properties in self._entities():
            if not isinstance(properties, _SubscriptionProperties):
                continue
            for key, target in (
                ("ForwardTo", properties.forward_to),
                ("ForwardDeadLetteredMessagesTo", properties.forward_dead_lettered_messages_to),
            ):
                if target and target.lower() not in destinations:
                    raise error_at((*location, "Properties", key), "there is no such entity")
            if _hops(properties.forward_to.lower(), forwards) > MAX_FORWARD_HOPS:
                raise error_at(
                    (*location, "Properties", "ForwardTo"),
                    f"messages are forwarded more than {MAX_FORWARD_HOPS} times, or in a circle",
                )
        return self

    def _entities(self) -> Iterator[tuple[Sequence[Step], str, _Properties]]:
        for number, queue in enumerate(self.queues):
            yield ("Queues", number), queue.name, queue.properties
        for number, topic in enumerate(self.topics):
            location = ("Topics", number)
            yield location, topic.name, topic.properties
            for index, item in enumerate(topic.subscriptions):
                path = f"{topic.name}/Subscriptions/{item.name}"
                yield (*location, "Subscriptions", index), path, item.properties


def _hops(target: str, forwards: dict[str, str]) -> int:
    hops = 0
    while target and hops <= MAX_FORWARD_HOPS:
        hops += 1
        target = forwards.get(target, "")
    return hops


class _UserConfig(_Model):
    namespaces: tuple[_Namespace]  # one, as in Microsoft's emulator
    logging: Any = None


class _Document(_Model):
    user_config: _UserConfig
