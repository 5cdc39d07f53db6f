from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from orchestrations.contracts.landing import BatchComparison
from orchestrations.landing.holding import DATA_CHANGED_LIMIT, Hold, decide
from tests.unit.orchestrations.examples import DATASET, PIPELINE, with_rules


def comparison(**changes: object) -> BatchComparison:
    nothing = BatchComparison(
        last_trained_blobs=None, only_deletions=False, data_changed_in_a_row=0, released=False
    )
    return nothing.model_copy(update=changes)


@given(
    blobs=st.integers(1, 1000),
    quarantined=st.integers(0, 10),
    last=st.none() | st.integers(1, 1000),
    shrink=st.floats(0, 1),
)
def test_a_batch_is_held_that_lost_a_larger_part_than_allowed(
    blobs: int, quarantined: int, last: int | None, shrink: float
) -> None:
    dataset = DATASET.model_copy(update={"blobs": blobs, "quarantined": quarantined})
    pipeline = with_rules(PIPELINE, dataset={"maximum_shrink": shrink})
    decision = decide(dataset, comparison(last_trained_blobs=last), pipeline)
    there = blobs + quarantined
    if last is None or there >= last or shrink == 1:
        assert decision == "train"
    elif isinstance(decision, Hold):
        assert (last - there) / last > shrink - 1e-9
        assert str(there) in decision.message
        assert str(last) in decision.message
    else:
        assert (last - there) / last <= shrink + 1e-9


def test_deletions_alone_are_ignored_unless_the_pipeline_wants_them() -> None:
    lost_one = comparison(last_trained_blobs=DATASET.blobs, only_deletions=True)
    assert decide(DATASET, lost_one, PIPELINE) == "ignore"
    assert (
        decide(DATASET, lost_one, with_rules(PIPELINE, source={"deletions": "retrain"})) == "train"
    )


def test_data_that_changes_again_and_again_is_held() -> None:
    once = comparison(data_changed_in_a_row=DATA_CHANGED_LIMIT - 1)
    twice = comparison(data_changed_in_a_row=DATA_CHANGED_LIMIT)
    assert decide(DATASET, once, PIPELINE) == "train"
    decision = decide(DATASET, twice, PIPELINE)
    assert isinstance(decision, Hold)
    assert decision.reason == "data-changed"
    assert "overwritten" in decision.message


def test_a_paused_pipeline_holds_whatever_else_is_right_or_wrong() -> None:
    for changes in ({}, {"data_changed_in_a_row": 9}, {"last_trained_blobs": 10_000}):
        decision = decide(DATASET, comparison(paused="paused by ada", **changes), PIPELINE)
        assert decision == Hold("paused", "the pipeline is paused by ada")


def test_what_a_person_released_is_trained_on() -> None:
    everything = comparison(
        last_trained_blobs=10_000,
        only_deletions=True,
        data_changed_in_a_row=9,
        paused="paused by ada",
        released=True,
    )
    assert decide(DATASET, everything, PIPELINE) == "train"


def test_a_batch_that_breaks_a_rule_is_held_with_its_numbers() -> None:
    broken = comparison(failed_checks=("files_at_least is 5", "two"), too_little="1 of 2 files")
    decision = decide(DATASET, broken, PIPELINE, has_reason=True)
    assert isinstance(decision, Hold)
    assert decision.reason == "check-failed"
    assert decision.message.startswith("files_at_least is 5; two: ")


def test_a_batch_that_differs_too_little_waits_for_the_next_one_or_for_its_age() -> None:
    little = {"too_little": "1 of 2 files"}
    assert decide(DATASET, comparison(**little), PIPELINE) == Hold("little-change", "1 of 2 files")
    assert decide(DATASET, comparison(**little), PIPELINE, has_reason=True) == "train"
    aged = with_rules(
        PIPELINE, settle={"minimum_change": {"files": 2}, "maximum_age_seconds": 3600}
    )
    for seconds, decided in ((3599, Hold("little-change", "1 of 2 files")), (3600, "train")):
        since = DATASET.frozen_at - timedelta(seconds=seconds)
        assert decide(DATASET, comparison(waiting_since=since, **little), aged) == decided
        forever = comparison(waiting_since=since, **little)
        assert decide(DATASET, forever, PIPELINE) == Hold("little-change", "1 of 2 files")
