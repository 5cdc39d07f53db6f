"""The credits of a namespace: how many operations a second the standard tier serves.

Source: https://learn.microsoft.com/azure/service-bus-messaging/service-bus-throttling
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from localazure import limits
from localazure.servicebus.amqp.errors import AmqpError
from localazure.servicebus.configuration import Sku, Topic
from localazure.servicebus.entities import Entity
from localazure.token_buckets import TokenBuckets

RETRY_SECONDS: Final = 2


class ServerBusyError(AmqpError):
    """The namespace has no credits left."""

    condition = "com.microsoft:server-busy"


class Credits:
    """The credits of one namespace. The premium tier has no credits and no such limit.

    A message that is sent, received or peeked costs one, and so does each filter that a message to
    a topic meets. Receivers are not delayed: what they receive is charged to what comes next.

    Args:
        sku: the tier.
        clock: seconds, from any origin.
    """

    def __init__(self, sku: Sku, clock: Callable[[], float] = time.monotonic) -> None:
        rate = limits.SERVICE_BUS_CREDITS.value
        self._buckets = TokenBuckets(rate, rate, clock) if sku is Sku.STANDARD else None

    def spend(self, count: int) -> None:
        """Pay for an operation.

        Raises:
            ServerBusyError: there are no credits; the operation must not take place.
        """
        if self._buckets is not None and self._buckets.take(None, count):
            raise ServerBusyError(
                "The request was terminated because the namespace localazure is being throttled. "
                f"Error code: 50009. Please wait {RETRY_SECONDS} seconds and try again."
            )

    def charge(self, count: int) -> None:
        """Pay for what has taken place."""
        if self._buckets is not None:
            self._buckets.charge(None, count)


def cost_of_sending(entity: Entity, messages: int) -> int:
    """Credits for messages to a queue or topic."""
    if not isinstance(entity.configured, Topic):
        return messages
    filters = sum(len(each.filters) for each in entity.configured.subscriptions)
    return messages * (1 + filters)
