from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrations import errors
from orchestrations.configuration.checks import ChampionCheck
from orchestrations.configuration.pipeline import Gate, Limits, Retry
from orchestrations.contracts.base import Failure
from orchestrations.contracts.manifest import (
    ManifestLine,
    add_copy_names,
    copy_name,
    decode_line,
)
from orchestrations.contracts.training import Job, RunInput
from orchestrations.errors import InvalidResults, PermanentError, QuotaExceeded, TransientError
from orchestrations.names import batch_id, run_id
from orchestrations.platform.activities import (
    FAULT_MARK,
    describe,
    fault_text,
    parse_fault,
    retry_delay,
)
from orchestrations.platform.waiting import (
    LAST_POLL_SECONDS,
    POLL_FAILURES_ALLOWED,
    check_deadline,
    growing_delay,
    poll_delay,
)
from orchestrations.training.judging import judge, judge_champion, lead_of_best
from tests.unit.orchestrations.examples import (
    FROZEN_AT,
    PIPELINE,
    encode_manifest,
    run_request,
    version_of,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
MAXIMIZE = Gate(metric="accuracy", floor=0.8, champion_margin=0.01)
MINIMIZE = Gate(metric="loss", goal="minimize", floor=0.5, champion_margin=0.01)


@pytest.mark.parametrize(
    ("gate", "value", "champion", "words"),
    [
        (MAXIMIZE, 0.8, None, None),
        (MAXIMIZE, 0.93, 0.91, None),
        (MINIMIZE, 0.5, None, None),
        (MINIMIZE, 0.3, 0.4, None),
        (MAXIMIZE.model_copy(update={"champion_margin": -0.01}), 0.9, 0.905, None),
        (MAXIMIZE, 0.79, None, "below the floor of 0.8"),
        (MAXIMIZE, 0.91, 0.91, "does not beat champion 7"),
        (MAXIMIZE, 0.915, 0.91, "by more than 0.01"),
        (MINIMIZE, 0.51, None, "above the ceiling of 0.5"),
        (MINIMIZE, 0.395, 0.4, "does not beat champion 7"),
    ],
)
def test_the_gate_lets_a_better_model_through_and_stops_a_worse_one(
    gate: Gate, value: float, champion: float | None, words: str | None
) -> None:
    metrics = {gate.metric: value}
    if champion is not None:
        metrics[f"champion_{gate.metric}"] = champion
    verdict = judge(gate, metrics, champion=None if champion is None else "7")
    assert verdict.promoted == (words is None)
    if words is None:
        assert (verdict.gain is None) == (champion is None)
    else:
        assert words in verdict.reason
        assert verdict.is_above_floor == ("champion" in words or "more than" in words)


@given(
    st.lists(st.floats(-0.02, 0.02), max_size=40),
    st.floats(-0.05, 0),
    st.sampled_from(["maximize", "minimize"]),
)
def test_small_losses_do_not_add_up(
    changes: list[float], margin: float, goal: Literal["maximize", "minimize"]
) -> None:
    """After any number of runs, the champion is worse than the best by at most the margin."""
    gate = Gate(metric="m", goal=goal, floor=-10 if goal == "maximize" else 10)
    gate = gate.model_copy(update={"champion_margin": margin})
    sign = 1 if goal == "maximize" else -1
    champions, gains = [0.0], list[float]()
    for change in changes:
        score = champions[-1] + sign * change
        verdict = judge(
            gate,
            {"m": score, "champion_m": champions[-1]},
            champion="1",
            champion_lead=lead_of_best(gains),
        )
        if verdict.promoted:
            assert verdict.gain is not None
            champions.append(score)
            gains.insert(0, verdict.gain)
        best = max(sign * each for each in champions)
        assert sign * champions[-1] >= best + margin - 1e-9


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_a_metric_that_is_no_number_is_a_mistake_of_the_job(value: float | None) -> None:
    metrics = {} if value is None else {"accuracy": value}
    with pytest.raises(InvalidResults, match="no finite 'accuracy'"):
        judge(MAXIMIZE, metrics, champion=None)


def test_a_champion_without_a_score_is_a_mistake_of_the_job() -> None:
    with pytest.raises(InvalidResults, match="champion_accuracy"):
        judge(MAXIMIZE, {"accuracy": 0.9}, champion="7")


@pytest.mark.parametrize(("metric", "passed"), [(None, True), ("recall", False)])
def test_the_champion_is_scored_by_the_metric_that_its_check_names(
    metric: str | None, *, passed: bool
) -> None:
    check = ChampionCheck.model_validate(
        {
            "job": "c.yml",
            "compute": [{"cluster": "cheap", "size": "s", "nodes": 1}],
            "metric": metric,
        }
    )
    metrics = {"accuracy": 0.8, "recall": 0.9}
    checked = judge_champion(check, MAXIMIZE, metrics, champion="7", registered=0.85)
    assert checked.passed == passed


PASSING = Failure(type="JobFailed", message="", permanent=False)
LASTING = Failure(type="DataRejected", message="", permanent=True)


@given(attempt=st.integers(1, 30), policy=st.builds(Retry, attempts=st.integers(1, 20)))
def test_a_run_is_tried_as_often_as_the_policy_says(attempt: int, policy: Retry) -> None:
    delay = retry_delay(PASSING, policy, attempt=attempt)
    assert (delay is not None) == (attempt < policy.attempts)
    assert retry_delay(LASTING, policy, attempt=attempt) is None


def test_delays_grow_as_listed_and_the_last_one_repeats() -> None:
    policy = Retry(attempts=9, delays_seconds=[1, 2])
    delays = [retry_delay(PASSING, policy, attempt=attempt) for attempt in (1, 2, 3, 4)]
    assert delays == [1, 2, 2, 2]


def test_every_error_keeps_its_kind_through_the_durable_boundary() -> None:
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.LandfallError):
            failure = describe(kind("why"))
            if kind is errors.LandfallError:
                continue
            again = errors.from_name(failure.type, failure.message, otherwise=PermanentError)
            assert type(again) is kind, name
            assert failure.permanent == issubclass(kind, PermanentError)


def test_a_fault_is_read_as_a_host_words_it() -> None:
    """The host adds its own text before the fault, and a stack after it."""
    failure = describe(QuotaExceeded("no \n option fits"))
    for text in (
        fault_text(failure),
        f"Activity function 'x' failed: ActivityFault: {fault_text(failure)}\nStack: File 1",
    ):
        assert describe(parse_fault(text)) == failure
    for text in ("worker died\nStack: File 1", f'x {FAULT_MARK}{{"type": \n cut', ""):
        error = parse_fault(text)
        assert type(error) is TransientError
        assert "Stack" not in str(error)


@given(st.integers(0, 1_000_000))
def test_polls_grow_to_a_bound(polls: int) -> None:
    assert poll_delay(polls) <= poll_delay(polls + 1) <= timedelta(seconds=LAST_POLL_SECONDS)


def test_the_first_polls_see_a_short_job_start() -> None:
    first_three = sum((poll_delay(polls) for polls in range(3)), timedelta())
    assert first_three < timedelta(seconds=10)


@given(st.integers(0, 1_000_000))
def test_polls_that_fail_outlast_an_outage_whenever_it_begins(polls: int) -> None:
    failed = range(1, POLL_FAILURES_ALLOWED + 1)
    waited = sum((poll_delay(polls + each - 1, each) for each in failed), timedelta())
    assert timedelta(minutes=20) < waited < timedelta(hours=1)


@given(st.timedeltas(timedelta(), timedelta(days=30)), st.sampled_from([15, 60]))
def test_delays_grow_within_limits(waited: timedelta, first: int) -> None:
    delay = growing_delay(waited, timedelta(seconds=first))
    assert timedelta(seconds=first) <= delay <= timedelta(minutes=15)
    assert delay <= growing_delay(waited + delay)


def test_a_wait_of_days_costs_a_hundred_tries_a_day() -> None:
    waited, tries = timedelta(), 0
    while waited < timedelta(days=3):
        waited += growing_delay(waited)
        tries += 1
    assert tries < 310


def test_only_waiting_and_running_have_a_limit() -> None:
    job = Job(name="j", state="completed", results_container="c")
    check_deadline(job, Limits(), state_since=NOW - timedelta(days=99), now=NOW)


lines = st.lists(
    st.builds(
        ManifestLine,
        path=st.text(min_size=1),
        size=st.integers(0, 2**60),
        md5=st.none() | st.text("0123456789abcdef", min_size=32, max_size=32),
        etag=st.text(),
        file=st.none() | st.just("ab/abc-1.png"),
    )
)


@given(lines)
def test_a_manifest_is_read_as_it_was_written(manifest: list[ManifestLine]) -> None:
    assert list(map(decode_line, encode_manifest(manifest).splitlines())) == manifest


@given(lines, lines)
def test_manifests_have_one_version_only_if_they_have_one_content(
    one: list[ManifestLine], other: list[ManifestLine]
) -> None:
    def content(manifest: list[ManifestLine]) -> list[tuple[str, int, str, str | None]]:
        return [(line.path, line.size, line.md5 or line.etag, line.file) for line in manifest]

    assert (version_of(one) == version_of(other)) == (content(one) == content(other))


@given(lines)
def test_each_line_names_its_copy_by_its_content(manifest: list[ManifestLine]) -> None:
    plain = [replace(line, file=None) for line in manifest]
    copied = list(map(decode_line, add_copy_names(encode_manifest(plain)).splitlines()))
    assert [replace(line, file=None) for line in copied] == plain

    def content(line: ManifestLine) -> tuple[object, ...]:
        if line.md5 is None:
            return line.path, line.etag
        return line.md5, line.size, (line.file or "").partition(".")[2]

    for one in copied:
        for other in copied:
            assert (one.file == other.file) == (content(one) == content(other))


def test_a_copy_keeps_its_extension() -> None:
    def name(path: str, md5: str | None = "ab" * 16) -> str:
        return copy_name(ManifestLine(path=path, size=7, md5=md5, etag="0x1"))

    assert name("7/1.png") == f"ab/{'ab' * 16}-7.png"
    assert name("8/2.png") == name("7/1.png")
    assert name("7/1") == f"ab/{'ab' * 16}-7"
    assert name("a.b/1.p g") == f"ab/{'ab' * 16}-7"
    assert name("7/1.png", None) != name("8/2.png", None)


def test_names_are_derived() -> None:
    assert run_id("digits", "abc", 2) == "digits-abc-2"
    assert batch_id("landing-digits", FROZEN_AT) == "landing-digits@2026-11-21T09:30:00.000+00:00"


def test_contracts_survive_the_durable_boundary_and_refuse_what_they_do_not_know() -> None:
    document = RunInput(request=run_request()).to_dict()
    assert RunInput.from_dict(document).request.pipeline == PIPELINE
    with pytest.raises(ValueError, match="surprise"):
        RunInput.from_dict({**document, "surprise": 1})
    with pytest.raises(ValueError, match="schema_version"):
        RunInput.from_dict({**document, "schema_version": 2})
