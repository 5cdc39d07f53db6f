from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from azure.core.pipeline.transport import RequestsTransport

from handlers.platform import run_index
from handlers.platform.run_index import RunPage, list_runs
from handlers.platform.run_records import add_to_record, read_run_record
from orchestrations.contracts.base import Failure
from orchestrations.contracts.run_states import RunState
from orchestrations.contracts.training import RunRecord, RunStep
from tests.local.handlers.zone_on_storage import Zone
from tests.spying import spy
from tests.unit.orchestrations.examples import FROZEN_AT, run_status

LONG = "a reason — " * 500


def record(
    zone: Zone, number: int, *states: RunState, pipeline: str = "digits", error: str | None = None
) -> RunRecord:
    started_at = FROZEN_AT + timedelta(minutes=number)
    steps = [
        RunStep(state=state, began_at=started_at + timedelta(seconds=second))
        for second, state in enumerate(states)
    ]
    made = RunRecord(
        status=run_status(
            f"{pipeline}-{number:04}-1",
            states[-1],
            steps[-1].began_at,
            error=None
            if error is None
            else Failure(type="JobFailed", message=error, permanent=False),
        ),
        started_at=started_at,
        steps=tuple(steps),
    )
    add_to_record(zone.clients, made)
    return made


def listed(zone: Zone, limit: int = 100, **filters: Any) -> Sequence[str]:
    return [run["id"] for run in list_runs(zone.clients.records, limit=limit, **filters).runs]


def test_a_run_is_found_under_the_state_that_it_is_in_and_no_other(zone: Zone) -> None:
    record(zone, 1, "registering")
    assert listed(zone, states=["registering"]) == ["digits-0001-1"]
    record(zone, 1, "registering", "queued")
    record(zone, 1, "registering", "queued", "failed", error=LONG)
    for _ in range(2):  # twice, as after a crash before the checkpoint
        record(zone, 1, "registering", "queued", "failed", error=LONG)
    record(zone, 1, "registering", "queued")  # a late record does not replace the final state
    assert listed(zone, states=["registering", "queued", "running"]) == []
    assert listed(zone, states=["failed"]) == listed(zone) == ["digits-0001-1"]
    (run,) = list_runs(zone.clients.records, limit=10).runs
    assert run["error"]["message"].startswith("a reason — a reason")
    assert len(run["error"]["message"]) == run_index.TEXT_LIMIT_CHARACTERS
    kept = read_run_record(zone.clients, "digits-0001-1")
    assert kept is not None
    assert kept.status.error is not None
    assert kept.status.error.message == LONG


def test_pages_have_every_run_once_newest_first_while_new_ones_come(zone: Zone) -> None:
    for number in range(7):
        pipeline = "letters" if number % 3 == 0 else "digits"
        record(zone, number, "registering", pipeline=pipeline)
    seen: list[str] = []
    page = RunPage([], None)
    for number in range(7, 20):
        page = list_runs(zone.clients.records, after=page.following, limit=2)
        seen += [run["id"] for run in page.runs]
        if page.following is None:
            break
        record(zone, number, "registering")
    assert [run.split("-")[1] for run in seen] == [f"{number:04}" for number in range(6, -1, -1)]


def test_a_busy_pipeline_is_read_on_beside_quiet_ones(zone: Zone) -> None:
    """The first listing of each pipeline has 5 entries, which are too few for the busy pipeline."""
    for number, pipeline in enumerate(("digits", "letters", "signs")):
        record(zone, number, "registering", pipeline=pipeline)
    for number in range(3, 20):
        record(zone, number, "registering", pipeline="busy")
    page = list_runs(zone.clients.records, limit=8)
    expected = [f"busy-{number:04}-1" for number in range(19, 11, -1)]
    assert [run["id"] for run in page.runs] == expected
    assert page.following is not None
    rest = list_runs(zone.clients.records, limit=20, after=page.following)
    expected = [f"busy-{number:04}-1" for number in range(11, 2, -1)]
    assert [run["id"] for run in rest.runs][:9] == expected
    assert [run["pipeline"] for run in rest.runs][9:] == ["signs", "letters", "digits"]


def test_runs_are_filtered_by_the_time_of_their_creation(zone: Zone) -> None:
    for number in range(6):
        record(zone, number, "registering")

    def moment(number: int | None) -> datetime | None:
        return None if number is None else FROZEN_AT + timedelta(minutes=number)

    for first, last, found in ((2, 4, [4, 3, 2]), (None, 1, [1, 0]), (4, None, [5, 4])):
        runs = listed(zone, created_from=moment(first), created_to=moment(last))
        assert runs == [f"digits-{number:04}-1" for number in found]


def test_a_page_costs_the_same_however_many_runs_there_are(zone: Zone) -> None:
    """With 3 runs and with 12, the first page takes two requests, and reads `limit` + 1 entries."""
    for total in (3, 12):
        for number in range(total):
            record(zone, number, "registering")
        with spy(RequestsTransport, "send") as requests:
            assert len(listed(zone, limit=2)) == 2
        # A thread of another test may send requests, too.
        url = zone.clients.records.url
        sent = [
            call.args[1] for call in requests.call_args_list if call.args[1].url.startswith(url)
        ]
        assert [each.query.get("maxresults") for each in sent] == [None, "3"]
