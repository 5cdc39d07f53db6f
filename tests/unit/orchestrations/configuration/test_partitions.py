from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrations.configuration.partitions import Partition, PartitionPattern, select

NOW = datetime(2026, 11, 22, 7, 30, tzinfo=UTC)
PATTERNS = ["date=%Y-%m-%d", "year=%Y/month=%m/day=%d", "%Y/%m", "%Y", "d=%d-%m-%Y/h=%H/"]
moments = st.datetimes(timezones=st.just(UTC)).map(lambda each: each.replace(minute=0, second=0))


@given(text=st.sampled_from(PATTERNS), moment=moments, name=st.text("ab/.", min_size=1))
def test_a_partition_is_found_again_by_its_key_and_by_every_path_in_it(
    text: str, moment: datetime, name: str
) -> None:
    pattern = PartitionPattern(text)
    directives = 1 + sum(each in text for each in ("%m", "%d", "%H"))
    key = moment.isoformat()[: [4, 7, 10, 13][directives - 1]]
    partition = pattern.partition(key)
    assert pattern.partition_of(partition.prefix + name) == partition
    assert partition.prefix.count("/") == pattern.levels
    assert partition.begins_at <= moment


@given(path=st.text(st.characters(codec="utf-8")))
def test_any_path_lies_in_one_partition_or_in_none(path: str) -> None:
    partition = PartitionPattern("date=%Y-%m-%d").partition_of(path)
    assert partition is None or path.startswith(partition.prefix)


@pytest.mark.parametrize(
    "path",
    ["date=2026-02-31/1.png", "date=2026-1-01/1.png", "date=2026-11-22", "x/date=2026-11-22/1"],
)
def test_what_names_no_day_lies_outside_all(path: str) -> None:
    assert PartitionPattern("date=%Y-%m-%d").partition_of(path) is None


@pytest.mark.parametrize(
    "text", ["", "date=", "%d", "%Y/%d", "%Y-%m-%m", "%y", "%Y%", "/%Y", "%Y//%m", "%Y%m%d"]
)
def test_a_pattern_that_names_no_span_of_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"needs %Y|not a path of folders"):
        PartitionPattern(text)


def days(*numbers: int) -> list[Partition]:
    pattern = PartitionPattern("date=%Y-%m-%d")
    return [pattern.partition(f"2026-11-{number:02}") for number in numbers]


some_days = st.lists(st.integers(1, 30)).map(lambda numbers: days(*numbers))


@given(found=some_days, newest=st.integers(1, 10))
def test_the_newest_partitions_are_so_many_and_none_left_out_is_newer(
    found: list[Partition], newest: int
) -> None:
    taken = select(found, own=None, now=NOW, newest=newest)
    assert len(taken) == min(newest, len(set(found)))
    assert list(taken) == sorted(set(taken))
    assert all(left <= taken[0] for left in set(found) - set(taken))


@given(found=some_days, last_days=st.integers(1, 10))
def test_the_last_days_end_today(found: list[Partition], last_days: int) -> None:
    taken = select(found, own=None, now=NOW, last_days=last_days)
    first_day = NOW.date() - timedelta(days=last_days - 1)
    assert set(taken) == {each for each in found if each.begins_at.date() >= first_day}


@given(found=some_days, newest=st.none() | st.integers(1, 10))
def test_of_a_batch_of_its_own_no_later_partition_is_taken(
    found: list[Partition], newest: int | None
) -> None:
    (own,) = days(15)
    taken = select([*found, own], own=own, now=NOW, newest=newest)
    assert taken[-1] == own
    assert newest is not None or list(taken) == [own]


def test_the_last_days_of_a_batch_of_its_own_end_with_it() -> None:
    (own,) = days(15)
    assert list(select(days(11, 12, 13, 14, 15, 16), own=own, now=NOW, last_days=3)) == days(
        13, 14, 15
    )


def test_without_a_rule_everything_is_taken() -> None:
    assert list(select(days(3, 1, 2), own=None, now=NOW)) == days(1, 2, 3)
