"""The app with the functions of a task hub."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.invocation import Invoke, KnownFunctions
from localazure.functions.durable.options import DurableOptions
from localazure.functions.durable.runtime.payloads import PayloadLimits

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The system time."""
    return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True)
class HostedApp:
    """The functions of an app, and how to run them.

    Attributes:
        invoke: runs a function.
        known: the functions that the app has.
        options: settings of host.json.
        clock: the current time, UTC.
        runs_twice: whether to run an activity that succeeded again, as after a lost worker.
        signals_twice: whether to deliver a signal to an entity again, as after a lost worker.
    """

    invoke: Invoke
    known: KnownFunctions
    options: DurableOptions
    clock: Clock = utc_now
    runs_twice: Callable[[str], bool] = lambda _activity: False
    signals_twice: Callable[[str], bool] = lambda _entity: False

    @cached_property
    def payloads(self) -> PayloadLimits:
        """Checks the sizes of payloads."""
        return PayloadLimits(self.options.payload_limit_bytes)

    def now(self) -> str:
        """The current time, ISO 8601."""
        return history.timestamp(self.clock())
