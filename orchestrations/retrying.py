"""What becomes of a failed run: another attempt, or the dead-letter queue. A pure decision."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrations.contracts.base import Failure
from orchestrations.errors import LandfallError, PermanentError
from orchestrations.pipeline import Retry


@dataclass(frozen=True)
class TryAgain:
    """Start the next attempt when the delay is over."""

    delay_seconds: float


@dataclass(frozen=True)
class GiveUp:
    """Dead-letter it."""


def after_failure(failure: Failure, policy: Retry, *, attempt: int) -> TryAgain | GiveUp:
    """Decide after attempt number `attempt` (from 1) ended in `failure`."""
    if failure.permanent or attempt >= policy.attempts:
        return GiveUp()
    delays = policy.delays_seconds
    return TryAgain(delays[min(attempt, len(delays)) - 1])


def describe(error: Exception) -> Failure:
    """An exception as data. What is not one of ours may pass, so it counts as transient."""
    kind = type(error).__name__ if isinstance(error, LandfallError) else "TransientError"
    return Failure(type=kind, message=str(error), permanent=isinstance(error, PermanentError))
