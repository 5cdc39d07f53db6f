from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from handlers.operate.api.documents import HeldSummary, RunSummary, TroubleSummary
from handlers.operate.api.pipeline_state import ZoneFacts, state_of, zones_to_show
from orchestrations.contracts.landing import LandingStatus, LastBatch, ZoneActivity
from orchestrations.contracts.run_states import RunState
from tests.unit.orchestrations.examples import DATASET, FROZEN_AT, PIPELINE, run_status, with_rules

NOW = FROZEN_AT + timedelta(hours=1)
PARTITIONED = with_rules(
    PIPELINE, source={"partitions": "date=%Y-%m-%d", "batch": "partition", "marker": None}
)
FAILED = TroubleSummary(
    kind="landing-failed", message="403", since=FROZEN_AT, until=NOW, count=1_200
)
HELD = HeldSummary(
    dataset_version="aa",
    blobs=3,
    reason="shrunk",
    ended_by="release",
    message="too few",
    batches=207,
    since=FROZEN_AT,
)
LAST = LastBatch(
    batch="b", dataset=DATASET, marker_at=None, last_trained=DATASET, data_changed_in_a_row=0
)


def zone(**facts: Any) -> ZoneFacts:
    nothing = ZoneActivity(newest_event_at=None, marker_at=None)
    known: dict[str, Any] = {"partition": None, "landing": None, "last": LAST, "held": None}
    return ZoneFacts(activity=nothing, **{**known, **facts})


def settling() -> LandingStatus:
    return LandingStatus(phase="settling", pipeline=PIPELINE.name, opened_at=FROZEN_AT)


def run(state: RunState) -> RunSummary:
    status = run_status("digits-aa-1", state, FROZEN_AT)
    absent = dict.fromkeys(("ended_at", "compute", "superseded_by", "next_attempt_at"))
    return RunSummary.model_validate({**status.to_dict(), "created_at": FROZEN_AT, **absent})


def state(*zones: ZoneFacts, running: Sequence[RunSummary] = ()) -> tuple[str, str]:
    return state_of(PIPELINE, None, running, zones, now=NOW)


def test_a_landing_that_fails_needs_a_person_even_while_it_is_opened_again() -> None:
    assert state(zone(landing=settling(), troubles=[FAILED])) == (
        "needs-a-human",
        "the landing fails since 2026-11-21 09:30:00 UTC, 1,200 times: 403",
    )


def test_the_zone_of_a_trouble_or_hold_is_named_and_other_zones_do_not_hide_it() -> None:
    well, bad = zone(partition="2026-11-20"), zone(partition="2026-11-19", troubles=[FAILED])
    assert "the landing fails in partition 2026-11-19 since" in state(well, bad)[1]
    held = zone(partition="2026-11-19", held=HELD)
    assert "the batch aa of partition 2026-11-19 of 3 blobs is held" in state(well, held)[1]


def test_a_hold_counts_its_batches() -> None:
    assert state(zone(held=HELD))[1] == (
        "the batch aa of 3 blobs is held (207 batches since 2026-11-21 09:30:00 UTC): too few. "
        "Release it, or fix the zone."
    )
    assert "batches since" not in state(zone(held=HELD.model_copy(update={"batches": 1})))[1]


def test_what_a_pause_holds_needs_nobody() -> None:
    assert state(zone(held=HELD.model_copy(update={"reason": "paused"})))[0] == "idle"


def test_work_comes_after_what_needs_a_person() -> None:
    assert state(zone(landing=settling()))[0] == "settling"
    assert state(zone(landing=settling()), running=[run("running")])[0] == "training"
    assert state(zone(), zone(troubles=[FAILED]), running=[run("running")])[0] == "needs-a-human"


def test_a_run_that_asks_people_needs_them() -> None:
    asks = {"approval": "approval-1", "reason": "waiting for approval before registration"}
    asking = run("judging").model_copy(update=asks)
    shown, sentence = state(zone(), running=[run("running"), asking])
    assert shown == "needs-a-human"
    assert sentence.endswith("; it is waiting for approval before registration")


def test_an_idle_pipeline_of_partitions_says_which_changed_last() -> None:
    newest, older = zone(partition="2026-11-21"), zone(partition="2026-11-20", last=None)
    shown = state_of(PARTITIONED, None, [], [newest, older], now=NOW)
    assert shown[0] == "idle"
    assert "partition 2026-11-21, since the last batch" in shown[1]


@pytest.mark.parametrize(
    ("attention", "shown"),
    [
        (set[str | None](), ["2026-11-20", "2026-11-18", "2026-11-19"]),
        ({"2026-10-01"}, ["2026-10-01", "2026-11-20", "2026-11-18"]),
        ({"2026-11-19"}, ["2026-11-19", "2026-11-20", "2026-11-18"]),
    ],
)
def test_what_may_need_a_person_is_shown_before_what_changed_last(
    attention: set[str | None], shown: list[str]
) -> None:
    changed = {
        None: NOW,
        "2026-11-19": FROZEN_AT - timedelta(days=1),
        "2026-11-18": FROZEN_AT,
        "2026-11-20": NOW,
        "2026-11-17": FROZEN_AT - timedelta(days=2),
    }
    assert zones_to_show(PARTITIONED, changed, attention, limit=3) == shown


def test_a_pipeline_without_known_partitions_shows_its_zone() -> None:
    assert zones_to_show(PARTITIONED, {}, (), limit=3) == [None]
    assert zones_to_show(PIPELINE, {"2026-11-20": NOW}, (), limit=3) == [None]
