"""Counts and latencies of an endpoint's requests, by deployment and minute. Pure.

Latencies are kept in a histogram whose buckets grow by the factor `GROWTH`: a percentile is within
this factor of its true value, for any number of requests.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

MINUTE_SECONDS = 60
GROWTH = 1.02
SMALLEST_MS = 0.1


@dataclass
class MinuteCounts:
    """The requests to one deployment in one minute."""

    statuses: Counter[tuple[int, int]] = field(default_factory=Counter[tuple[int, int]])
    """(status of the response to the client, status of the model) → number of requests."""
    latencies: Counter[int] = field(default_factory=Counter[int])
    """Bucket → number of requests."""
    total_ms: float = 0.0

    def add(self, status: int, model_status: int, milliseconds: float) -> None:
        """Count one request."""
        self.statuses[status, model_status] += 1
        self.latencies[bucket_of(milliseconds)] += 1
        self.total_ms += milliseconds

    def merge(self, other: MinuteCounts) -> None:
        """Add the counts of another object."""
        self.statuses.update(other.statuses)
        self.latencies.update(other.latencies)
        self.total_ms += other.total_ms

    def mean_ms(self) -> float | None:
        """The mean of the latencies; None without requests."""
        return self.total_ms / self.latencies.total() if self.latencies else None

    def percentile_ms(self, percent: float) -> float | None:
        """The latency that this percentage of requests does not exceed; None without requests."""
        rank = self.latencies.total() * percent / 100
        count = 0
        for bucket in sorted(self.latencies):
            count += self.latencies[bucket]
            if count >= rank:
                return SMALLEST_MS * GROWTH**bucket
        return None

    def to_document(self) -> dict[str, Any]:
        """Convert to plain JSON types."""
        return {
            "statuses": [[*key, count] for key, count in self.statuses.items()],
            "latencies": [[bucket, count] for bucket, count in self.latencies.items()],
            "total_ms": self.total_ms,
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> MinuteCounts:
        """Read what `to_document` wrote."""
        return cls(
            Counter({(status, model): count for status, model, count in document["statuses"]}),
            Counter({bucket: count for bucket, count in document["latencies"]}),  # noqa: C416 - a Counter of pairs counts the pairs
            document["total_ms"],
        )


def bucket_of(milliseconds: float) -> int:
    """The histogram bucket of a latency."""
    return max(0, math.ceil(math.log(max(milliseconds, SMALLEST_MS) / SMALLEST_MS, GROWTH)))


def minute_of(moment: float) -> int:
    """The start of a time's minute, both in epoch seconds."""
    return int(moment) // MINUTE_SECONDS * MINUTE_SECONDS
