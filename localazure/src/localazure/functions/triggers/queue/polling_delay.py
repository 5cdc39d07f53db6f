"""The delay between polls of an empty queue: a randomized exponential backoff.

Source: https://github.com/Azure/azure-webjobs-sdk (RandomizedExponentialBackoffStrategy)
"""

from __future__ import annotations

import random
from typing import Final

SHORTEST_SECONDS: Final = 0.1  # QueuePollingIntervals.Minimum in the real extension
_JITTER: Final = 0.2


class PollingDelay:
    """A delay that doubles up to the longest delay, with a jitter of a fifth."""

    def __init__(self, longest_seconds: float, chance: random.Random) -> None:
        self._longest_seconds = longest_seconds
        self._chance = chance
        self._misses = 0
        self._delay_seconds = 0.0

    def found(self) -> None:
        """Reset the delay to the shortest one after a poll that found messages."""
        self._misses = 0
        self._delay_seconds = 0.0

    def missed(self) -> float:
        """Return the seconds until the next poll after an empty poll."""
        if self._delay_seconds < self._longest_seconds:
            jitter = self._chance.uniform(1 - _JITTER, 1 + _JITTER)
            more = jitter * 2 ** (self._misses - 1) if self._misses else 0
            self._delay_seconds = min((1 + more) * SHORTEST_SECONDS, self._longest_seconds)
            self._misses += 1
        return self._delay_seconds
