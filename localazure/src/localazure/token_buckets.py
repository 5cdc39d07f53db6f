"""Rate limits: a bucket of tokens for each key, refilled over time. Pure.

Source: https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

_KEPT_BUCKETS: Final = 10_000
"""With more keys than this, full buckets are deleted, since they are equal to new ones."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


class TokenBuckets:
    """Buckets of one size.

    Args:
        size: the number of tokens in a full bucket, that is, the largest burst.
        per_second: the number of tokens added per second.
        clock: seconds, from any origin.
    """

    def __init__(self, size: float, per_second: float, clock: Callable[[], float]) -> None:
        self._size = size
        self._per_second = per_second
        self._clock = clock
        self._buckets: dict[Hashable, _Bucket] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: Hashable, tokens: float = 1.0) -> int:
        """Take tokens if there is at least one. The number in the bucket may become negative.

        So an operation that is larger than the bucket is allowed, too, and later ones wait.

        Returns:
            0 if the tokens were taken; otherwise whole seconds until there is a token.
        """
        bucket = self._filled(key)
        if bucket.tokens < 1:
            return max(1, math.ceil((1 - bucket.tokens) / self._per_second))
        bucket.tokens -= tokens
        return 0

    def charge(self, key: Hashable, tokens: float) -> None:
        """Take tokens for an operation that was already executed, even if there are too few."""
        self._filled(key).tokens -= tokens

    def left(self, key: Hashable) -> int:
        """Return the number of whole tokens in a bucket."""
        return max(0, int(self._filled(key).tokens))

    def _filled(self, key: Hashable) -> _Bucket:
        now = self._clock()
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= _KEPT_BUCKETS:
                self._forget_full(now)
            bucket = self._buckets[key] = _Bucket(self._size, now)
        bucket.tokens = self._tokens(bucket, now)
        bucket.filled_at = now
        return bucket

    def _tokens(self, bucket: _Bucket, now: float) -> float:
        return min(self._size, bucket.tokens + (now - bucket.filled_at) * self._per_second)

    def _forget_full(self, now: float) -> None:
        self._buckets = {
            key: bucket
            for key, bucket in self._buckets.items()
            if self._tokens(bucket, now) < self._size
        }
