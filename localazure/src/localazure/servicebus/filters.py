"""Whether the rules of a subscription select a message."""

from __future__ import annotations

from typing import Any

from localazure.servicebus.amqp import message as amqp_message
from localazure.servicebus.amqp.performatives import Properties
from localazure.servicebus.configuration import CorrelationFilter


class MessageFacts:
    """The fields of a message that filters read. Application properties are decoded lazily."""

    def __init__(self, properties: Properties, bare: bytes) -> None:
        self._properties = properties
        self._bare = bare
        self._application: dict[Any, Any] | None = None

    @property
    def size(self) -> int:
        """Bytes of the bare message."""
        return len(self._bare)

    def system(self, name: str) -> str | None:
        """A field of the properties section, as text."""
        value = getattr(self._properties, name)
        return None if value is None else str(value)

    def application(self, name: str) -> Any:
        """An application property; None without it."""
        if self._application is None:
            self._application = amqp_message.application_properties(self._bare)
        return self._application.get(name)


def matches(filters: tuple[CorrelationFilter, ...], facts: MessageFacts) -> bool:
    """Whether any filter selects the message.

    Strings are compared case-sensitively, as in Azure Service Bus:
    https://learn.microsoft.com/azure/service-bus-messaging/topic-filters
    """
    return any(_matches(each, facts) for each in filters)


def _matches(correlation: CorrelationFilter, facts: MessageFacts) -> bool:
    return all(facts.system(name) == value for name, value in correlation.system.items()) and all(
        _equal(facts.application(name), value) for name, value in correlation.properties.items()
    )


def _equal(actual: Any, expected: Any) -> bool:
    # For Service Bus a boolean differs from a number; in Python True == 1.
    return actual == expected and isinstance(actual, bool) == isinstance(expected, bool)
