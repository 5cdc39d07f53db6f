from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.landing import SettlingRules, ZoneActivity
from orchestrations.landing.settling import (
    CLOCK_SKEW,
    Wait,
    decide_to_list,
    has_more,
    judge_dataset,
    was_listed,
)
from tests.unit.orchestrations.examples import DATASET, PIPELINE, with_rules

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MARKED = SettlingRules.of(PIPELINE)
UNMARKED = SettlingRules.of(with_rules(PIPELINE, source={"marker": None}))
TRAINED_ANYWAY = SettlingRules.of(with_rules(PIPELINE, settle={"without_marker": "train"}))
all_rules = st.sampled_from([MARKED, UNMARKED, TRAINED_ANYWAY])
moments = st.floats(-500, 500).map(lambda seconds: NOW + timedelta(seconds=seconds))
past = st.floats(-500, 0).map(lambda seconds: NOW + timedelta(seconds=seconds))


def listed(newest: datetime | None, at: datetime = NOW) -> Dataset:
    return DATASET.model_copy(update={"newest": newest, "frozen_at": at})


def activity(newest: datetime | None, marker: datetime | None = None) -> ZoneActivity:
    return ZoneActivity(newest_event_at=newest, marker_at=marker)


def test_an_empty_listing_is_empty() -> None:
    assert judge_dataset(listed(None), None, UNMARKED, opened_at=NOW) == "empty"


def test_a_zone_of_which_no_event_is_known_is_listed() -> None:
    for rules in (MARKED, UNMARKED):
        assert decide_to_list(activity(None), rules, opened_at=NOW, now=NOW) == "list"


@given(rules=all_rules, newest=st.none() | moments, marker=st.none() | moments, opened_at=past)
def test_a_wait_ends_in_the_future_and_never_past_the_deadline(
    rules: SettlingRules, newest: datetime | None, marker: datetime | None, opened_at: datetime
) -> None:
    deadline = opened_at + timedelta(seconds=100)
    for decision in (
        decide_to_list(activity(newest, marker), rules, opened_at=opened_at, now=NOW),
        judge_dataset(listed(newest), marker, rules, opened_at=opened_at),
    ):
        if isinstance(decision, Wait):
            assert NOW < decision.until <= deadline


@given(newest=past, opened_at=past)
def test_waiting_until_then_is_waiting_long_enough(newest: datetime, opened_at: datetime) -> None:
    decision = judge_dataset(listed(newest), None, UNMARKED, opened_at=opened_at)
    if isinstance(decision, Wait):
        then = judge_dataset(listed(newest, decision.until), None, UNMARKED, opened_at=opened_at)
        assert then == "whole"


@given(rules=all_rules, newest=past, marker=st.none() | past, opened_at=past)
def test_what_the_listing_calls_whole_was_worth_listing(
    rules: SettlingRules, newest: datetime, marker: datetime | None, opened_at: datetime
) -> None:
    """If no event was lost, the newest event has the newest blob's time, in whole seconds."""
    seconds = newest.replace(microsecond=0)
    whole_seconds = None if marker is None else marker.replace(microsecond=0)
    decision = judge_dataset(listed(seconds), whole_seconds, rules, opened_at=opened_at)
    if decision == "whole":
        earlier = decide_to_list(
            activity(seconds, whole_seconds), rules, opened_at=opened_at, now=NOW
        )
        assert earlier == "list"


@given(newest=past, marker=st.none() | past, opened_at=past)
def test_with_a_marker_only_the_marker_makes_a_batch_whole(
    newest: datetime, marker: datetime | None, opened_at: datetime
) -> None:
    decision = judge_dataset(listed(newest), marker, MARKED, opened_at=opened_at)
    if marker is not None and marker >= newest:
        assert decision == "whole"
    else:
        assert decision == "overdue" or isinstance(decision, Wait)


@pytest.mark.parametrize("rules", [MARKED, TRAINED_ANYWAY])
def test_what_happens_without_a_marker_is_the_pipelines_choice(rules: SettlingRules) -> None:
    opened_at = NOW - timedelta(seconds=101)
    before = decide_to_list(activity(NOW - SECOND), rules, opened_at=opened_at, now=NOW)
    by = judge_dataset(listed(NOW - SECOND), None, rules, opened_at=opened_at)
    assert (before, by) == (("overdue", "overdue") if rules is MARKED else ("list", "whole"))


def test_what_was_written_while_the_zone_was_listed_may_be_unseen() -> None:
    assert was_listed(NOW - CLOCK_SKEW, listed_from=NOW)
    assert not was_listed(NOW, listed_from=NOW)
    assert not was_listed(NOW + SECOND, listed_from=NOW)


def test_a_batch_that_was_frozen_has_seen_its_own_events() -> None:
    assert not has_more(activity(NOW - 10 * SECOND), listed_from=NOW, marker_at=None)
    assert not has_more(activity(None), listed_from=NOW, marker_at=None)
    assert has_more(activity(NOW + SECOND), listed_from=NOW, marker_at=None)


def test_the_events_of_a_marked_batch_are_as_new_as_its_listing() -> None:
    marker = NOW - SECOND / 2
    assert not has_more(activity(NOW, marker), listed_from=NOW, marker_at=marker)
    assert has_more(activity(NOW, NOW), listed_from=NOW, marker_at=marker)
    later = marker + 3 * SECOND
    assert has_more(activity(later, marker), listed_from=NOW, marker_at=marker)
