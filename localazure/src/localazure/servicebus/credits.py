"""The credits of a namespace, which limit the operations per second of the standard tier.

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

    Each message that is sent, received or peeked costs one credit; a message to a topic costs one
    more for each filter. Deliveries are never delayed: their cost delays later operations.

    Args:
        sku: the tier.
        clock: returns seconds, from any origin.
    """

    def __init__(self, sku: Sku, clock: Callable[[], float] = time.monotonic) -> None:
        rate = limits.SERVICE_BUS_CREDITS.value
        self._buckets = TokenBuckets(rate, rate, clock) if sku is Sku.STANDARD else None

    def spend(self, count: int) -> None:
        """Pay for an operation in advance.

        Raises:
            ServerBusyError: there are no credits. Do not execute the operation.
        """
        if self._buckets is not None and self._buckets.take(None, count):
            raise ServerBusyError(
                "The request was terminated because the namespace localazure is being throttled. "
                f"Error code: 50009. Please wait {RETRY_SECONDS} seconds and try again."
            )

    def charge(self, count: int) -> None:
        """Pay for an operation that has taken place."""
        if self._buckets is not None:
            self._buckets.charge(None, count)


def cost_of_sending(entity: Entity, messages: int) -> int:
    """The cost of messages to a queue or topic."""
    if not isinstance(entity.configured, Topic):
        return messages
    filters = sum(len(each.filters) for each in entity.configured.subscriptions)
    return messages * (1 + filters)
