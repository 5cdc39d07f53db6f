"""Rates as services limit them: a bucket of tokens for each key, refilled as time passes. Pure.

Source: https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

_KEPT_BUCKETS: Final = 10_000
"""With more keys than this the full buckets are forgotten: they are as good as new."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


class TokenBuckets:
    """Buckets of one size.

    Args:
        size: tokens of a full bucket, hence the largest burst.
        per_second: tokens that come back.
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
        """Take tokens if there is one at least; the others are owed.

        So an operation that is larger than the bucket passes too, and those after it wait.

        Returns:
            0 if they are taken; else whole seconds until a token is there, and none is taken.
        """
        bucket = self._filled(key)
        if bucket.tokens < 1:
            return max(1, math.ceil((1 - bucket.tokens) / self._per_second))
        bucket.tokens -= tokens
        return 0

    def charge(self, key: Hashable, tokens: float) -> None:
        """Take tokens for what has already happened, owed if there are none."""
        self._filled(key).tokens -= tokens

    def left(self, key: Hashable) -> int:
        """Whole tokens in a bucket."""
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
