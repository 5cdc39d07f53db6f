"""The follow-up of a failed run: another attempt, or the dead-letter queue. Pure decisions."""

from __future__ import annotations

from orchestrations.configuration.pipeline import Retry
from orchestrations.contracts.base import Failure
from orchestrations.errors import LandfallError, PermanentError, TransientError, shorten


def retry_delay(failure: Failure, policy: Retry, *, attempt: int) -> float | None:
    """The delay in seconds before the next attempt, after attempt `attempt` (from 1) failed.

    None: there is no next attempt, and the run is dead-lettered.
    """
    if failure.permanent or attempt >= policy.attempts:
        return None
    delays = policy.delays_seconds
    return delays[min(attempt, len(delays)) - 1]


def describe(error: Exception) -> Failure:
    """An exception as data: type and message, no stack.

    Exceptions of other libraries are treated as transient; their type is part of the message.
    """
    if isinstance(error, LandfallError):
        kind, message = type(error).__name__, str(error)
    else:
        kind, message = TransientError.__name__, f"{type(error).__name__}: {error}"
    return Failure(type=kind, message=shorten(message), permanent=isinstance(error, PermanentError))
