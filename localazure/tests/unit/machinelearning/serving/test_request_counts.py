from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localazure.machinelearning.serving.request_counts import GROWTH, MinuteCounts, minute_of

LATENCIES = st.lists(st.floats(0.2, 60_000), min_size=1)


def counted(latencies: list[float]) -> MinuteCounts:
    counts = MinuteCounts()
    for latency in latencies:
        counts.add(200, 200, latency)
    return counts


@given(LATENCIES, st.sampled_from([50, 90, 95, 99]))
def test_a_percentile_is_within_a_bucket_of_the_true_one(
    latencies: list[float], percent: float
) -> None:
    true = sorted(latencies)[math.ceil(len(latencies) * percent / 100) - 1]
    estimate = counted(latencies).percentile_ms(percent)
    assert estimate is not None
    assert true / GROWTH <= estimate <= true * GROWTH * GROWTH


@given(LATENCIES, LATENCIES)
def test_parts_merge_to_the_whole(first: list[float], second: list[float]) -> None:
    merged = counted(first)
    merged.merge(counted(second))
    whole = counted(first + second)
    assert (merged.statuses, merged.latencies) == (whole.statuses, whole.latencies)
    assert merged.total_ms == pytest.approx(whole.total_ms)


@given(LATENCIES)
def test_a_document_is_read_back(latencies: list[float]) -> None:
    counts = counted(latencies)
    counts.add(424, 500, 3.0)
    assert MinuteCounts.from_document(json.loads(json.dumps(counts.to_document()))) == counts


def test_without_requests_there_is_no_latency() -> None:
    assert MinuteCounts().percentile_ms(95) is MinuteCounts().mean_ms() is None


def test_a_minute_begins_at_its_first_second() -> None:
    assert minute_of(179.9) == 120
