from __future__ import annotations

from datetime import timedelta
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrations.configuration.checks import Checks, MinimumChange
from orchestrations.contracts.difference import Amount, Difference, Group, Groups, NamedBlob
from orchestrations.contracts.landing import (
    BatchComparison,
    ClaimDataset,
    LandingRequest,
    LandingResult,
    OpenedBy,
)
from orchestrations.contracts.run_states import RunState, UnfinishedRunState
from orchestrations.landing.decisions import (
    ATTEMPT_OVERDUE,
    DATA_CHANGED_LIMIT,
    Hold,
    LastRound,
    checks_before_training,
    decide,
    failed_checks,
    too_little,
    why_no_further_round,
)
from tests.unit.orchestrations.examples import DATASET, PIPELINE, run_request, with_rules
from tests.unit.orchestrations.landing.simulated_zone import Zone

SAME, OTHER = "c" * 16, "d" * 16
UNDER_WAY: tuple[Any, ...] = (None, "retrying", *get_args(UnfinishedRunState))
NOTHING = Amount(blobs=0, bytes=0)
DIFFERENCE = Difference(
    version="2",
    base="1",
    before=Amount(blobs=200, bytes=2000),
    after=Amount(blobs=100, bytes=1000),
    added=Amount(blobs=3, bytes=30),
    removed=Amount(blobs=4, bytes=40),
    changed=Amount(blobs=20, bytes=60),
    moved=Amount(blobs=1, bytes=500),
    duplicates=Amount(blobs=10, bytes=100),
    duplicates_of_base=NOTHING,
    without_md5=0,
    smallest=NamedBlob(path="a/small", bytes=2),
    largest=NamedBlob(path="a/large", bytes=50),
    sizes={},
    folders=Groups(),
    labels=Groups(
        groups=(
            Group(name="cat", before=10, after=90, added=80, removed=0, changed=0),
            Group(name="dog", before=10, after=10, added=0, removed=0, changed=0),
            Group(name="emu", before=10, after=0, added=0, removed=10, changed=0),
        )
    ),
    partitions=Groups(),
    examples={},
)


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


def test_what_a_check_has_ended_begins_again_when_it_is_released_or_the_files_are_others() -> None:
    last = LastRound(run="r-1", state="held", configuration=SAME, ended_by="data-check")
    again = asked("event")
    assert why_no_further_round(again, last) is not None
    assert why_no_further_round(asked("event", files=OTHER), last) is None
    assert why_no_further_round(again.model_copy(update={"released": True}), last) is None


@pytest.mark.parametrize(
    ("changes", "has_reason", "checks"),
    [
        ({"new_share": 0.2}, False, ("data-check", "champion-check")),
        ({"new_share": 0.6}, False, ("data-check",)),
        ({"new_share": 0.0}, False, ("data-check",)),
        ({}, False, ("data-check",)),
        ({"new_share": 0.2}, True, ("data-check",)),
        ({"new_share": 0.2, "released": True}, False, ()),
    ],
)
def test_what_is_checked_before_the_training(
    changes: dict[str, Any],
    has_reason: bool,  # noqa: FBT001 - a parameter
    checks: tuple[str, ...],
) -> None:
    cheap = [{"cluster": "cheap", "size": "D2", "nodes": 1}]
    job: dict[str, Any] = {"job": "job.yml", "compute": cheap}
    rules = with_rules(PIPELINE, checks=job, champion_check={**job, "new_data_share_at_most": 0.5})
    found = checks_before_training(comparison(**changes), rules, has_reason=has_reason)
    assert found == checks
    assert checks_before_training(comparison(**changes), PIPELINE, has_reason=has_reason) == ()


def asked(
    opened_by: OpenedBy = "request", *, reason: str | None = None, files: str | None = SAME
) -> ClaimDataset:
    changes = {"reason": reason, "configuration": files}
    return ClaimDataset(
        request=run_request().model_copy(update=changes), batch="b@t", opened_by=opened_by
    )


def why(of: ClaimDataset, state: RunState | None = "succeeded", files: str | None = SAME) -> str:
    last = LastRound(run="digits-aa-2", state=state, configuration=files)
    return why_no_further_round(of, last) or ""


@pytest.mark.parametrize("state", UNDER_WAY)
def test_the_model_of_a_run_that_is_under_way_answers_a_reason(state: RunState | None) -> None:
    assert "digits-aa-2" in why(asked(reason="drift"), state)
    assert "has not ended" in why(asked(reason="drift"), state)


@pytest.mark.parametrize("state", sorted(set(get_args(RunState)) - set(UNDER_WAY)))
def test_a_reason_is_answered_by_another_training_however_the_last_one_ended(
    state: RunState,
) -> None:
    assert why(asked(reason="drift"), state) == ""


def test_a_next_attempt_that_never_began_answers_no_reason() -> None:
    """Found by the simulation, seed 4451: its message was dead-lettered."""
    request = asked(reason="drift")
    due = request.request.dataset.frozen_at - ATTEMPT_OVERDUE
    for late in (-1, 1):
        next_at = due - timedelta(seconds=late)
        last = LastRound(run="r-1", state="retrying", configuration=SAME, next_attempt_at=next_at)
        assert (why_no_further_round(request, last) is None) == (late > 0)


@pytest.mark.parametrize("state", get_args(RunState))
def test_other_files_or_code_are_trained_at_once(state: RunState) -> None:
    assert why(asked(files=OTHER), state) == ""


def test_a_request_with_other_parameters_than_the_last_round_trains_again() -> None:
    request = asked()
    request = request.model_copy(
        update={"request": request.request.model_copy(update={"parameters": {"seed": 1}})}
    )
    for seed, is_trained in ((1, False), (2, True)):
        last = LastRound(
            run="r-1", state="succeeded", configuration=SAME, parameters={"seed": seed}
        )
        assert (why_no_further_round(request, last) is None) == is_trained


def test_what_was_trained_before_configurations_were_recorded_is_not_taken_for_changed() -> None:
    assert "has changed since" in why(asked(), files=None)
    assert "has changed since" in why(asked(files=None))


@pytest.mark.parametrize("opened_by", get_args(OpenedBy))
def test_the_content_of_a_cancelled_run_is_trained_on_where_a_person_asks(
    opened_by: OpenedBy,
) -> None:
    is_asked = opened_by in ("request", "release")
    assert (why(asked(opened_by), "cancelled") == "") == is_asked


@pytest.mark.parametrize("opened_by", sorted(set(get_args(OpenedBy)) - {"request"}))
def test_uploads_of_the_same_content_are_duplicates_and_say_how_to_ask(opened_by: OpenedBy) -> None:
    for files in (SAME, OTHER):
        assert "request a run of digits with a reason" in why(asked(opened_by, files=files))


# --- in the landing -------------------------------------------------------------------------------


@pytest.mark.parametrize("again", ["x", "y"])
def test_a_signal_that_comes_during_an_upload_waits_for_it(again: str) -> None:
    """It is answered by the run on the new content, or by one on the same content."""
    zone = Zone()
    zone.driver.at(0.0, lambda: zone.put("1.png", "x"))
    zone.driver.at(100.0, lambda: zone.put("1.png", again))
    given = LandingRequest(pipeline="digits", opened_by="request", reason="digits_drift")
    zone.driver.at(101.0, lambda: zone.driver.start("landing", "request-digits-1", given.to_dict()))
    zone.driver.run()
    newest = zone.batches[-1].dataset
    assert newest.newest is not None
    assert newest.frozen_at - newest.newest >= timedelta(seconds=10)
    assert len(zone.trained) == 2
    answer = LandingResult.from_dict(zone.driver.instances["request-digits-1"].output)
    assert answer.run is not None
    assert answer.run.endswith("r2-1" if again == "x" else f"{zone.trained[1]}-1")


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


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ({}, []),
        ({"files_at_least": 100, "files_at_most": 100}, []),
        ({"files_at_least": 101}, ["files_at_least is 101, and the batch has 100 files"]),
        ({"files_at_least": 1_234_567}, ["files_at_least is 1234567, and the batch"]),
        ({"files_at_most": 99}, ["files_at_most is 99, and the batch has 100 files"]),
        ({"bytes_of_a_file": {"at_least": 2, "at_most": 50}}, []),
        (
            {"bytes_of_a_file": {"at_least": 3, "at_most": 49}},
            ["a/small has 2 bytes, not at_least 3", "a/large has 50 bytes, not at_most 49"],
        ),
        ({"duplicates_at_most": 0.1}, []),
        ({"duplicates_at_most": 0.09}, ["10 of 100 files twice (10.0%)"]),
        ({"changed_at_most": 0.1}, []),
        ({"changed_at_most": 0.05}, ["other content in 20 of 200 files (10.0%)"]),
        ({"share_of_each_label": {"at_most": 0.9}}, []),
        (
            {"share_of_each_label": {"at_least": 0.05, "at_most": 0.8}},
            ["'cat' has 90 of 100 files (90.0%), not at_most 0.8; 'emu' has 0 of 100 files"],
        ),
    ],
)
def test_a_broken_rule_is_told_with_its_numbers(rules: dict[str, Any], told: list[str]) -> None:
    failed = failed_checks(Checks.model_validate(rules), DIFFERENCE)
    assert len(failed) == len(told)
    assert all(part in sentence for part, sentence in zip(told, failed, strict=True))


def test_more_labels_than_are_listed_cannot_be_checked() -> None:
    labels = DIFFERENCE.labels.model_copy(update={"left_out": 7})
    checks = Checks.model_validate({"share_of_each_label": {"at_most": 1}})
    (failed,) = failed_checks(checks, DIFFERENCE.model_copy(update={"labels": labels}))
    assert "10 labels, too many" in failed


@pytest.mark.parametrize(
    ("minimum", "is_enough"),
    [
        ({"files": 28}, True),
        ({"files": 29}, False),
        ({"bytes": 90}, True),
        ({"bytes": 91}, False),
        ({"share": 0.14}, True),
        ({"share": 0.15}, False),
        ({"files": 29, "share": 0.14}, True),
        ({"files": 29, "bytes": 91, "share": 0.15}, False),
    ],
)
def test_one_reached_minimum_is_enough(minimum: dict[str, Any], *, is_enough: bool) -> None:
    rule = MinimumChange.model_validate(minimum)
    told = too_little(rule, DIFFERENCE)
    assert (told is None) is is_enough
    assert told is None or "files" not in minimum or f"28 of {minimum['files']} files" in told
    assert too_little(rule, DIFFERENCE.model_copy(update={"base": None})) is None


@pytest.mark.parametrize(
    ("section", "document", "problem"),
    [
        (MinimumChange, {}, "none of files, bytes and share is set"),
        (Checks, {"bytes_of_a_file": {}}, "neither at_least nor at_most is set"),
        (Checks, {"bytes_of_a_file": {"at_least": 2, "at_most": 1}}, "at_most is less"),
        (Checks, {"duplicates_at_most": 1.5}, "less than or equal to 1"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(
    section: type[Checks | MinimumChange], document: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValidationError, match=problem):
        section.model_validate(document)
