from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from azure.core.pipeline.transport import RequestsTransport

from handlers.landing import dataset_claims
from handlers.landing.dataset_claims import check_superseded, claim_dataset, list_claims_without_run
from handlers.platform import record_store
from handlers.platform.run_records import add_to_record, read_claim, read_run_record
from orchestrations.contracts.datasets import CheckSuperseded, Dataset
from orchestrations.contracts.landing import ClaimDataset, DatasetClaim, OpenedBy
from orchestrations.contracts.run_states import RunState
from orchestrations.contracts.runs import Redrive, RunRequest
from orchestrations.contracts.training import RunRecord
from tests.local.handlers.zone_on_storage import Zone
from tests.spying import spy
from tests.unit.orchestrations.examples import DATASET, run_status

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def a_dataset(version: str, age: timedelta = timedelta(0)) -> Dataset:
    return DATASET.model_copy(update={"version": version, "frozen_at": NOW - age})


def claim(zone: Zone, version: str, batch: str, age: timedelta = timedelta(0)) -> ClaimDataset:
    request = RunRequest(pipeline=zone.pipeline, dataset=a_dataset(version, age), attempt=1)
    return ClaimDataset(request=request, batch=batch)


def test_who_claims_first_has_it_for_ever(zone: Zone) -> None:
    ours, theirs = claim(zone, "v1", "w1"), claim(zone, "v1", "w2")
    first = claim_dataset(zone.clients, ours)
    assert first.batch == "w1"
    answer = claim_dataset(zone.clients, theirs)
    assert answer.model_copy(update={"why_not": None}) == first
    assert f"request a run of {zone.pipeline.name} with a reason" in (answer.why_not or "")
    # The activity is run again after a crash before its checkpoint: the same answer.
    assert claim_dataset(zone.clients, ours) == first
    assert claim_dataset(zone.clients, claim(zone, "v2", "w2")).batch == "w2"


def test_of_many_at_once_one_wins_and_all_know(zone: Zone) -> None:
    requests = [claim(zone, "v1", f"w{number}") for number in range(16)]
    with ThreadPoolExecutor(len(requests)) as threads:
        claims = list(threads.map(claim_dataset, [zone.clients] * len(requests), requests))
    assert len({each.batch for each in claims}) == 1
    assert sum(asked.batch == got.batch for asked, got in zip(requests, claims, strict=True)) == 1


@pytest.mark.parametrize(("ages", "by"), [([], None), ([1, 2], None), ([0, -1, -2], 2), ([-1], 0)])
def test_a_dataset_is_superseded_by_the_newest_that_was_claimed(
    zone: Zone, ages: list[int], by: int | None
) -> None:
    for number, hours in enumerate(ages):
        claim_dataset(zone.clients, claim(zone, f"v{number}", "w", timedelta(hours=hours)))
    question = CheckSuperseded(pipeline=zone.pipeline.name, dataset=a_dataset("ours"))
    answer = check_superseded(zone.clients, question).by
    assert answer == (None if by is None else zone.run_of(a_dataset(f"v{by}")))


def keep(zone: Zone, run: str, state: RunState) -> None:
    status = run_status(run, state, datetime.now(UTC))
    add_to_record(zone.clients, RunRecord(status=status, started_at=status.since))


@pytest.mark.parametrize("state", ["superseded", "succeeded"])
def test_a_run_whose_data_changed_leads_to_the_run_of_the_next_batch(
    zone: Zone, state: RunState
) -> None:
    zone.land("1.png")
    dataset = zone.close_batch()
    first = zone.run_of(dataset)
    keep(zone, first, state)
    zone.land("2.png")
    second = zone.run_of(zone.close_batch())
    record = read_run_record(zone.clients, first)
    assert record is not None
    assert record.superseded_by == (second if state == "superseded" else None)


def test_only_claims_of_late_are_listed_and_none_of_another_pipeline(zone: Zone) -> None:
    for version, hours in (("new", 1), ("edge", 24), ("old", 25)):
        claim_dataset(zone.clients, claim(zone, version, "w", timedelta(hours=hours)))
    neighbour = zone.pipeline.model_copy(update={"name": f"{zone.pipeline.name}-b"})
    claim_dataset(zone.clients, claim(Zone(zone.clients, neighbour), "theirs", "w"))

    since = NOW - timedelta(hours=24)
    (name,) = list_claims_without_run(zone.clients, zone.pipeline.name, frozen_after=since)
    claimed = read_claim(zone.clients, name)
    assert claimed is not None
    assert claimed.claim.run == zone.run_of(a_dataset("new"))
    assert claimed.request == claim(zone, "new", "w", timedelta(hours=1)).request


def test_a_claim_whose_run_is_on_record_is_not_listed(zone: Zone) -> None:
    for version in ("lost", "run"):
        claim_dataset(zone.clients, claim(zone, version, "w"))
    keep(zone, zone.run_of(a_dataset("run")), "registering")
    since = NOW - timedelta(days=1)
    (name,) = list_claims_without_run(zone.clients, zone.pipeline.name, frozen_after=since)
    assert name == f"dataset-claims/{zone.pipeline.name}/lost.json"


def test_a_batch_that_met_an_older_claim_supersedes_nothing(zone: Zone) -> None:
    """The zone has its old content again, so the current run continues."""
    claim_dataset(zone.clients, claim(zone, "v1", "w1", timedelta(hours=2)))
    claim_dataset(zone.clients, claim(zone, "v1", "w2", -timedelta(hours=1)))
    question = CheckSuperseded(pipeline=zone.pipeline.name, dataset=a_dataset("ours"))
    assert check_superseded(zone.clients, question).by is None


def test_a_claim_is_in_the_index_before_it_is_made(
    zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = claim(zone, "v1", "w1", -timedelta(hours=1))

    def die(*_: object, **__: object) -> None:
        raise ConnectionError("the process dies")

    with monkeypatch.context() as patch:
        patch.setattr(record_store, "create", die)
        with pytest.raises(ConnectionError):
            claim_dataset(zone.clients, ours)
    (name,) = list_claims_without_run(zone.clients, zone.pipeline.name, frozen_after=NOW)
    assert read_claim(zone.clients, name) is None
    question = CheckSuperseded(pipeline=zone.pipeline.name, dataset=a_dataset("older"))
    assert check_superseded(zone.clients, question).by is None
    claim_dataset(zone.clients, ours)
    assert check_superseded(zone.clients, question).by == ours.request.run


def test_no_question_about_claims_reads_their_history(
    zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        claim_dataset(zone.clients, claim(zone, f"v{number}", "w", timedelta(hours=number)))
    monkeypatch.setattr(dataset_claims, "PAGE_ENTRIES", 2)
    with spy(record_store, "read") as read, spy(RequestsTransport, "send") as pages:
        ours = a_dataset("ours", timedelta(hours=2, minutes=30))
        question = CheckSuperseded(pipeline=zone.pipeline.name, dataset=ours)
        assert check_superseded(zone.clients, question).by == zone.run_of(a_dataset("v0"))
    assert read.call_count == 1
    assert pages.call_count == 2  # one of the index, one claim


def test_a_batch_of_one_partition_supersedes_none_of_another(zone: Zone) -> None:
    newer = claim(zone, "v1", "w", -timedelta(hours=1))
    dataset = newer.request.dataset.model_copy(update={"partition": "2026-11-21"})
    request = newer.request.model_copy(update={"dataset": dataset})
    claim_dataset(zone.clients, newer.model_copy(update={"request": request}))
    for partition, by in (("2026-11-20", None), ("2026-11-21", newer.request.run), (None, None)):
        ours = a_dataset("ours").model_copy(update={"partition": partition})
        question = CheckSuperseded(pipeline=zone.pipeline.name, dataset=ours)
        assert check_superseded(zone.clients, question).by == by


# --- rounds ---------------------------------------------------------------------------------------


def request(
    zone: Zone, key: str, *, reason: str | None = None, files: str | None = None, minutes: int = 1
) -> ClaimDataset:
    """A caller's request, which finds the content of v1 some minutes later."""
    asked = claim(zone, "v1", f"request-{key}@t", -timedelta(minutes=minutes))
    changed = asked.request.model_copy(update={"reason": reason, "configuration": files})
    return asked.model_copy(update={"request": changed, "opened_by": "request"})


def ended(zone: Zone, asked: ClaimDataset, state: RunState = "succeeded") -> DatasetClaim:
    """Claim, and let the run end."""
    got = claim_dataset(zone.clients, asked)
    keep(zone, got.run, state)
    return got


def test_a_reason_is_one_more_round_however_often_its_landing_is_started(zone: Zone) -> None:
    first = ended(zone, claim(zone, "v1", "w1"))
    signal = request(zone, "drift", reason="drift")
    second = ended(zone, signal)
    assert (second.round, second.batch) == (2, signal.batch)
    assert second.run == f"{zone.pipeline.name}-v1r2-1" != first.run
    assert claim_dataset(zone.clients, signal) == second, "run again after a crash"
    restarted = signal.model_copy(update={"batch": "request-drift@later"})
    assert claim_dataset(zone.clients, restarted) == second
    third = ended(zone, request(zone, "again", reason="drift", minutes=2))
    assert third.round == 3
    assert claim_dataset(zone.clients, claim(zone, "v1", "w1")) == first, "it never changes"
    name = f"dataset-claims/{zone.pipeline.name}/v1r2.json"
    kept = read_claim(zone.clients, name)
    assert kept is not None
    assert (kept.claim, kept.request.run, kept.request.reason) == (second, second.run, "drift")


def test_one_reason_is_answered_by_the_run_that_is_under_way(zone: Zone) -> None:
    first = claim_dataset(zone.clients, claim(zone, "v1", "w1"))
    for state in (None, "running", "retrying"):
        if state is not None:
            keep(zone, first.run, state)
        answer = claim_dataset(zone.clients, request(zone, f"{state}", reason="drift"))
        assert answer.run == first.run
        assert "has not ended" in (answer.why_not or "")


def test_the_last_attempt_tells_how_a_round_ended_and_with_which_job(zone: Zone) -> None:
    asked = claim(zone, "v1", "w1")
    files = asked.request.model_copy(update={"configuration": "a" * 16})
    ended(zone, asked.model_copy(update={"request": files}), "failed")
    redrive = Redrive(
        run=files.run, by="ada", reason="fixed", at=NOW, job="b" * 16, record="runs/x/redrive.json"
    )
    run = files.model_copy(update={"attempt": 2}).run
    status = run_status(run, "succeeded", datetime.now(UTC), redrive=redrive)
    add_to_record(zone.clients, RunRecord(status=status, started_at=status.since))
    same = claim_dataset(zone.clients, request(zone, "same", files="b" * 16))
    assert (same.round, same.why_not is None) == (1, False)
    assert run in (same.why_not or "")
    assert claim_dataset(zone.clients, request(zone, "other", files="a" * 16)).round == 2


@pytest.mark.parametrize(("opened_by", "number"), [("event", 1), ("release", 2), ("request", 2)])
def test_a_cancelled_round_is_followed_by_another_one_where_it_is_asked_for(
    zone: Zone, opened_by: OpenedBy, number: int
) -> None:
    ended(zone, claim(zone, "v1", "w1"), "cancelled")
    again = claim(zone, "v1", "request-x@t").model_copy(update={"opened_by": opened_by})
    assert claim_dataset(zone.clients, again).round == number


def test_of_many_requests_at_once_one_gets_the_round_and_the_others_its_run(zone: Zone) -> None:
    ended(zone, claim(zone, "v1", "w1"))
    requests = [request(zone, f"{number}", reason="drift") for number in range(8)]
    with ThreadPoolExecutor(len(requests)) as threads:
        claims = list(threads.map(claim_dataset, [zone.clients] * len(requests), requests))
    assert {each.round for each in claims} == {2}
    assert sum(asked.batch == got.batch for asked, got in zip(requests, claims, strict=True)) == 1


def test_a_round_whose_run_was_lost_is_found_and_supersedes_what_is_older(zone: Zone) -> None:
    ended(zone, claim(zone, "v1", "w1", timedelta(days=40)))
    second = claim_dataset(zone.clients, request(zone, "drift", reason="drift"))
    since = NOW - timedelta(days=30)
    names = list_claims_without_run(zone.clients, zone.pipeline.name, frozen_after=since)
    assert f"dataset-claims/{zone.pipeline.name}/v1r2.json" in names
    question = CheckSuperseded(pipeline=zone.pipeline.name, dataset=a_dataset("older"))
    assert check_superseded(zone.clients, question).by == second.run
    keep(zone, second.run, "registering")
    names = list_claims_without_run(zone.clients, zone.pipeline.name, frozen_after=since)
    assert f"dataset-claims/{zone.pipeline.name}/v1r2.json" not in names
