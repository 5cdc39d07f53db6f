"""The settings of a task hub."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.invocation import KnownFunctions
from localazure.functions.durable.options import DurableOptions
from localazure.functions.durable.runtime.payloads import PayloadLimits

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The system time."""
    return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True)
class HubSettings:
    """The settings of one task hub.

    Attributes:
        known: the functions that its worker has.
        options: settings of host.json.
        clock: the current time, UTC.
    """

    known: KnownFunctions
    options: DurableOptions
    clock: Clock = utc_now

    @cached_property
    def payloads(self) -> PayloadLimits:
        """Checks the sizes of payloads."""
        return PayloadLimits(self.options.payload_limit_bytes)

    def now(self) -> str:
        """The current time, ISO 8601."""
        return history.timestamp(self.clock())
