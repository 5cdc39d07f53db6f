from __future__ import annotations

from datetime import timedelta

import pytest

from handlers.operate.api import sentences
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.landing import ZoneActivity
from tests.unit.orchestrations.examples import FROZEN_AT, PIPELINE, run_status, with_rules

NOW = FROZEN_AT + timedelta(seconds=30)


def settling(pipeline: Pipeline, *, marker: float | None = None, newest: float = 20) -> str:
    return sentences.describe_settling(
        pipeline,
        ZoneActivity(
            newest_event_at=FROZEN_AT + timedelta(seconds=newest),
            marker_at=None if marker is None else FROZEN_AT + timedelta(seconds=marker),
        ),
        opened_at=FROZEN_AT,
        now=NOW,
    )


def test_a_zone_with_a_marker_waits_for_it() -> None:
    assert settling(PIPELINE) == (
        "waits for the marker _SUCCESS, which has not come (the newest data is of "
        "2026-11-21 09:30:20 UTC); at 2026-11-21 09:31:40 UTC operators are alerted and nothing is "
        "trained"
    )
    assert "is older, of 2026-11-21 09:30:05 UTC" in settling(PIPELINE, marker=5)
    train = with_rules(PIPELINE, settle={"without_marker": "train"})
    assert settling(train).endswith("the batch is trained on without it")


def test_a_zone_without_a_marker_waits_until_it_is_quiet() -> None:
    assert settling(with_rules(PIPELINE, source={"marker": None}), newest=25) == (
        "waits until nothing was written for 10 s (the newest data is of 2026-11-21 09:30:25 UTC): "
        "until 2026-11-21 09:30:35 UTC, or 2026-11-21 09:31:40 UTC at the latest"
    )


def test_a_zone_that_may_be_whole_waits_for_nothing() -> None:
    assert settling(PIPELINE, marker=21).endswith("is being listed and frozen")


def test_a_run_says_how_long_its_state_may_last() -> None:
    run = run_status("r-v-1", "running", FROZEN_AT)
    assert sentences.describe_run(run, PIPELINE) == (
        "run r-v-1 (attempt 1 of 3) has been running since 2026-11-21 09:30:00 UTC; "
        "it is ended after 2 h in this state"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (45, "45 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (273_600, "3 d 4 h")],
)
def test_durations_have_their_two_largest_units(seconds: int, text: str) -> None:
    assert sentences.duration(timedelta(seconds=seconds)) == text
