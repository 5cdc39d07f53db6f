"""The entities of the namespace, from the configuration file of Microsoft's Service Bus emulator.

The format is documented at
https://learn.microsoft.com/azure/service-bus-messaging/test-locally-with-service-bus-emulator;
the meaning of each property is that of the ARM resource. Whatever this broker cannot do is refused
here, so that no program runs against half a feature.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localazure.errors import ConfigurationError

# Defaults and limits of Azure Service Bus, see
# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas and the ARM schema.
DEFAULT_LOCK_MS = 60_000
MAX_LOCK_MS = 300_000
DEFAULT_MAX_DELIVERY_COUNT = 10
DEFAULT_DUPLICATE_WINDOW_MS = 600_000
MAX_DUPLICATE_WINDOW_MS = 7 * 24 * 3600 * 1000
MAX_FORWARD_HOPS = 4

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,7})?)S)?)?"
)
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._~/-]{0,258}[A-Za-z0-9_])?")


class ConfigError(ConfigurationError):
    """A configuration file that cannot be served: names file, place in the file and value."""


@dataclass(frozen=True, kw_only=True)
class CorrelationFilter:
    """Equality conditions on a message, all of which must hold."""

    system: dict[str, str] = field(default_factory=dict[str, str])
    """Field of the AMQP properties section to expected value."""
    application: dict[str, Any] = field(default_factory=dict[str, Any])
    """Application property to expected value."""


@dataclass(frozen=True, kw_only=True)
class QueueConfig:
    """A queue, or a subscription: what holds messages for receivers. Durations in ms."""

    path: str
    """`queue` or `topic/Subscriptions/name`, as written."""
    lock_ms: int = DEFAULT_LOCK_MS
    max_delivery_count: int = DEFAULT_MAX_DELIVERY_COUNT
    default_ttl_ms: int | None = None
    dead_letters_expired: bool = False
    duplicate_window_ms: int | None = None
    """None without duplicate detection."""
    forward_to: str | None = None
    forward_dead_letters_to: str | None = None
    rules: tuple[CorrelationFilter, ...] = (CorrelationFilter(),)
    """Of a subscription: any of them lets a message in; the default one lets all in."""


@dataclass(frozen=True, kw_only=True)
class TopicConfig:
    """A topic with its subscriptions."""

    path: str
    subscriptions: tuple[QueueConfig, ...]
    default_ttl_ms: int | None = None
    duplicate_window_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class NamespaceConfig:
    """Everything that the file declares."""

    queues: tuple[QueueConfig, ...] = ()
    topics: tuple[TopicConfig, ...] = ()


def load(file: Path) -> NamespaceConfig:
    """Read the file; one that does not exist declares nothing.

    Raises:
        ConfigError: the file is malformed, or asks for what this broker does not do.
    """
    if not file.exists():
        return NamespaceConfig()
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{file}: not JSON: {error}") from None
    namespaces = _Node(document, "", file).child("UserConfig").items("Namespaces")
    if len(namespaces) != 1:
        raise ConfigError(
            f"{file}: UserConfig.Namespaces: {len(namespaces)} namespaces; there must be one, "
            "as in Microsoft's emulator"
        )
    namespace = namespaces[0]
    namespace.check_keys("Name", "Queues", "Topics")
    parsed = NamespaceConfig(
        queues=tuple(_queue(node, node.name()) for node in namespace.items("Queues")),
        topics=tuple(map(_topic, namespace.items("Topics"))),
    )
    _check_references(parsed, file)
    return parsed


class _Node:
    """A value of the document that knows where it stands."""

    def __init__(self, value: Any, path: str, file: Path) -> None:
        self.value = value
        self.path = path
        self.file = file

    def error(self, expected: str) -> ConfigError:
        return ConfigError(
            f"{self.file}: {self.path or 'the document'}: {self.value!r}: {expected}"
        )

    def _object(self) -> dict[str, Any]:
        if not isinstance(self.value, dict):
            raise self.error("must be an object")
        return self.value

    def child(self, key: str) -> _Node:
        path = f"{self.path}.{key}" if self.path else key
        return _Node(self._object().get(key), path, self.file)

    def items(self, key: str) -> list[_Node]:
        node = self.child(key)
        if node.value is None:
            return []
        if not isinstance(node.value, list):
            raise node.error("must be an array")
        return [
            _Node(item, f"{node.path}[{number}]", self.file)
            for number, item in enumerate(node.value)
        ]

    def check_keys(self, *known: str) -> None:
        for key in self._object():
            if key not in known:
                raise self.child(key).error(f"unknown property; known are {', '.join(known)}")

    def name(self) -> str:
        node = self.child("Name")
        if not isinstance(node.value, str) or not _NAME.fullmatch(node.value):
            raise node.error(
                "must be a name of letters, digits, '.', '-', '_' and '/', that begins and ends "
                "with a letter or digit"
            )
        return node.value

    def properties(self, *known: str) -> _Node:
        node = self.child("Properties")
        node.value = {} if node.value is None else node.value
        node.check_keys(*known)
        return node

    def flag(self, key: str) -> bool:
        node = self.child(key)
        if node.value is None:
            return False
        if not isinstance(node.value, bool):
            raise node.error("must be true or false")
        return node.value

    def text(self, key: str) -> str | None:
        node = self.child(key)
        if node.value is not None and not isinstance(node.value, str):
            raise node.error("must be a string")
        return node.value or None

    def count(self, key: str, default: int) -> int:
        node = self.child(key)
        if node.value is None:
            return default
        if isinstance(node.value, bool) or not isinstance(node.value, int) or node.value < 1:
            raise node.error("must be an integer of at least 1")
        return node.value

    def duration_ms(self, key: str, *, maximum: int | None = None) -> int | None:
        node = self.child(key)
        if node.value is None:
            return None
        milliseconds = parse_duration_ms(node.value) if isinstance(node.value, str) else None
        if milliseconds is None or milliseconds < 1:
            raise node.error("must be an ISO 8601 duration of days to seconds, such as PT1M")
        if maximum is not None and milliseconds > maximum:
            raise node.error(f"must be at most {maximum // 1000} seconds")
        return milliseconds


def parse_duration_ms(text: str) -> int | None:
    """Milliseconds of an ISO 8601 duration without years and months; None if it is none."""
    match = _DURATION.fullmatch(text)
    if match is None or text.endswith(("P", "T")):
        return None
    days, hours, minutes, seconds = (float(match[unit] or 0) for unit in match.groupdict())
    return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


_HOLDER_PROPERTIES = (
    "DeadLetteringOnMessageExpiration",
    "DefaultMessageTimeToLive",
    "ForwardDeadLetteredMessagesTo",
    "ForwardTo",
    "LockDuration",
    "MaxDeliveryCount",
    "RequiresSession",
)
_DUPLICATE_PROPERTIES = ("DuplicateDetectionHistoryTimeWindow", "RequiresDuplicateDetection")


def _queue(node: _Node, path: str) -> QueueConfig:
    node.check_keys("Name", "Properties")
    properties = node.properties(*_HOLDER_PROPERTIES, *_DUPLICATE_PROPERTIES)
    return _holder(
        properties, path, (CorrelationFilter(),), duplicate_window_ms=_duplicates(properties)
    )


def _subscription(node: _Node, topic: str) -> QueueConfig:
    node.check_keys("Name", "Properties", "Rules")
    properties = node.properties(*_HOLDER_PROPERTIES)
    rules = tuple(map(_rule, node.items("Rules"))) or (CorrelationFilter(),)
    return _holder(properties, f"{topic}/Subscriptions/{node.name()}", rules)


def _holder(
    properties: _Node,
    path: str,
    rules: tuple[CorrelationFilter, ...],
    *,
    duplicate_window_ms: int | None = None,
) -> QueueConfig:
    if properties.flag("RequiresSession"):
        raise properties.child("RequiresSession").error("sessions are not covered by this broker")
    return QueueConfig(
        path=path,
        lock_ms=properties.duration_ms("LockDuration", maximum=MAX_LOCK_MS) or DEFAULT_LOCK_MS,
        max_delivery_count=properties.count("MaxDeliveryCount", DEFAULT_MAX_DELIVERY_COUNT),
        default_ttl_ms=properties.duration_ms("DefaultMessageTimeToLive"),
        dead_letters_expired=properties.flag("DeadLetteringOnMessageExpiration"),
        duplicate_window_ms=duplicate_window_ms,
        forward_to=properties.text("ForwardTo"),
        forward_dead_letters_to=properties.text("ForwardDeadLetteredMessagesTo"),
        rules=rules,
    )


def _topic(node: _Node) -> TopicConfig:
    node.check_keys("Name", "Properties", "Subscriptions")
    properties = node.properties("DefaultMessageTimeToLive", *_DUPLICATE_PROPERTIES)
    path = node.name()
    return TopicConfig(
        path=path,
        subscriptions=tuple(_subscription(item, path) for item in node.items("Subscriptions")),
        default_ttl_ms=properties.duration_ms("DefaultMessageTimeToLive"),
        duplicate_window_ms=_duplicates(properties),
    )


def _duplicates(properties: _Node) -> int | None:
    window_ms = properties.duration_ms(
        "DuplicateDetectionHistoryTimeWindow", maximum=MAX_DUPLICATE_WINDOW_MS
    )
    if not properties.flag("RequiresDuplicateDetection"):
        return None
    return window_ms or DEFAULT_DUPLICATE_WINDOW_MS


# Property of a CorrelationFilter to field of the AMQP properties section.
_SYSTEM_PROPERTIES = {
    "ContentType": "content_type",
    "CorrelationId": "correlation_id",
    "Label": "subject",
    "MessageId": "message_id",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_group_id",
    "SessionId": "group_id",
    "To": "to",
}


def _rule(node: _Node) -> CorrelationFilter:
    node.check_keys("Name", "Properties")
    properties = node.properties("FilterType", "CorrelationFilter", "SqlFilter", "Action")
    kind = properties.child("FilterType")
    if kind.value != "Correlation":
        raise kind.error("must be Correlation; SQL filters are not covered by this broker")
    if properties.child("Action").value is not None:
        raise properties.child("Action").error("rule actions are not covered by this broker")
    conditions = properties.child("CorrelationFilter")
    conditions.check_keys(*_SYSTEM_PROPERTIES, "Properties")
    application = conditions.child("Properties")
    application.value = {} if application.value is None else application.value
    if not isinstance(application.value, dict):
        raise application.error("must be an object")
    system = {name: conditions.text(key) for key, name in _SYSTEM_PROPERTIES.items()}
    return CorrelationFilter(
        system={name: value for name, value in system.items() if value is not None},
        application=dict(application.value),
    )


def _check_references(namespace: NamespaceConfig, file: Path) -> None:
    """Names are unique whatever their case; forwarding goes somewhere, and not in circles."""
    subscriptions = [item for topic in namespace.topics for item in topic.subscriptions]
    paths = [item.path for item in (*namespace.queues, *namespace.topics, *subscriptions)]
    seen: set[str] = set()
    for path in paths:
        if path.lower() in seen:
            raise ConfigError(f"{file}: {path!r}: there are two entities of that name")
        seen.add(path.lower())
    queues = {item.path.lower(): item for item in namespace.queues}
    destinations = {item.path.lower() for item in (*namespace.queues, *namespace.topics)}
    for item in (*namespace.queues, *subscriptions):
        for key, target in (
            ("ForwardTo", item.forward_to),
            ("ForwardDeadLetteredMessagesTo", item.forward_dead_letters_to),
        ):
            if target is not None and target.lower() not in destinations:
                raise ConfigError(f"{file}: {key} of {item.path}: {target!r}: no such entity")
        hops, following = 0, item.forward_to
        while following is not None:
            hops += 1
            if hops > MAX_FORWARD_HOPS:
                raise ConfigError(
                    f"{file}: ForwardTo of {item.path}: {item.forward_to!r}: more than "
                    f"{MAX_FORWARD_HOPS} hops, or a circle"
                )
            target_queue = queues.get(following.lower())
            following = target_queue.forward_to if target_queue is not None else None
