from __future__ import annotations

from localazure.token_buckets import TokenBuckets


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_a_burst_empties_the_bucket_and_time_refills_it() -> None:
    clock = Clock()
    buckets = TokenBuckets(3, 0.5, clock)
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 2]
    clock.seconds += 1
    assert buckets.take("a") == 1
    clock.seconds += 1
    assert buckets.take("a") == 0
    clock.seconds += 1000
    assert buckets.left("a") == 3


def test_each_key_has_a_bucket_of_its_own() -> None:
    buckets = TokenBuckets(1, 1, Clock())
    assert [buckets.take(key) for key in ("a", "b", "a")] == [0, 0, 1]


def test_what_is_larger_than_the_bucket_passes_and_is_owed() -> None:
    clock = Clock()
    buckets = TokenBuckets(10, 10, clock)
    assert buckets.take("a", 50) == 0
    assert buckets.take("a") == 5
    clock.seconds += 4.9
    assert (buckets.take("a"), buckets.left("a")) == (0, 8)
    buckets.charge("a", 20)
    assert buckets.left("a") == 0


def test_full_buckets_are_forgotten_and_empty_ones_kept() -> None:
    clock = Clock()
    buckets = TokenBuckets(1, 0.001, clock)
    assert buckets.take("used") == 0
    for number in range(25_000):
        buckets.left(number)
    assert len(buckets) <= 10_001
    assert buckets.take("used") > 0
