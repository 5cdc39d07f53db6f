from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from typing import Any

from azure.storage.blob import ContainerClient

from handlers.landing.batch_records import (
    LastListing,
    batches_since,
    count_data_changed,
    frozen_at,
    last_batch,
    list_last_batches,
    newest_batches,
    read_batch,
    record_batch,
)
from orchestrations.contracts.landing import (
    BatchOutcome,
    CountDataChanged,
    LandingResult,
    RecordBatch,
)
from tests.local.handlers.zone_on_storage import Zone
from tests.spying import spy
from tests.unit.orchestrations.examples import DATASET

NOON = datetime(2026, 11, 21, 12, 0, 0, 123456, tzinfo=UTC)


def a_batch(
    zone: Zone, name: str, at: datetime, outcome: BatchOutcome = "empty", **dataset: Any
) -> RecordBatch:
    return RecordBatch(
        batch=name,
        opened_at=at,
        opened_by="event",
        dataset=DATASET.model_copy(update={"frozen_at": at, **dataset}),
        result=LandingResult(pipeline=zone.pipeline.name, outcome=outcome),
    )


def test_there_is_no_last_batch_before_the_first(zone: Zone) -> None:
    assert last_batch(zone.clients, zone.pipeline.name) is None
    assert list(newest_batches(zone.clients, zone.pipeline.name)) == []
    assert list(batches_since(zone.clients, zone.pipeline.name, NOON)) == []


def test_batches_come_in_the_order_of_their_freezes_whatever_the_order_of_records(
    zone: Zone,
) -> None:
    # The same moment in another timezone sorts the same.
    east = timezone(timedelta(hours=9))
    batches = [
        a_batch(zone, "b", NOON),
        a_batch(zone, "a", (NOON + timedelta(seconds=1)).astimezone(east)),
        a_batch(zone, "c", NOON + timedelta(hours=1)),
    ]
    for batch in reversed(batches):
        for _ in range(2):  # the second time as after a crash before the checkpoint
            record_batch(zone.clients, batch)
    neighbour = Zone(zone.clients, zone.pipeline.model_copy(update={"name": "neighbour"}))
    record_batch(zone.clients, a_batch(neighbour, "d", NOON + timedelta(hours=2)))

    names = list(batches_since(zone.clients, zone.pipeline.name, NOON - timedelta(days=7)))
    assert [read_batch(zone.clients, name) for name in names] == batches
    assert list(newest_batches(zone.clients, zone.pipeline.name)) == names[::-1]
    last = last_batch(zone.clients, zone.pipeline.name)
    assert last is not None
    assert last.batch == "c"
    assert frozen_at(names[0]) == NOON.replace(microsecond=123000)


def test_what_is_asked_of_batches_does_not_grow_with_their_history(zone: Zone) -> None:
    for day in range(30):
        for number in range(3):
            at = NOON - timedelta(days=day, minutes=number)
            record_batch(zone.clients, a_batch(zone, f"b{day}-{number}", at))
    with spy(ContainerClient, "list_blob_names") as asked:
        newest = islice(newest_batches(zone.clients, zone.pipeline.name), 3)
        since = NOON - timedelta(days=20, minutes=1, seconds=1)
        following = islice(batches_since(zone.clients, zone.pipeline.name, since), 5)
        found = [
            [each.batch for name in names if (each := read_batch(zone.clients, name))]
            for names in (newest, following)
        ]
    assert found[0] == ["b0-0", "b0-1", "b0-2"]
    assert found[1] == ["b20-1", "b20-0", "b19-2", "b19-1", "b19-0"]
    assert asked.call_count <= 4  # the days that were read


def test_the_last_batch_knows_what_was_trained_on_last(zone: Zone) -> None:
    outcomes: list[BatchOutcome] = ["started", "held", "only-deletions", "duplicate", "held"]
    trained = [15, 15, 15, 12, 12]
    for number, (outcome, blobs) in enumerate(zip(outcomes, trained, strict=True)):
        size = {"started": 15, "held": 9, "only-deletions": 14, "duplicate": 12}[outcome]
        at = NOON + timedelta(hours=number)
        record_batch(zone.clients, a_batch(zone, f"b{number}", at, outcome, blobs=size))
        last = last_batch(zone.clients, zone.pipeline.name)
        assert last is not None
        assert last.last_trained is not None
        assert (last.dataset.blobs, last.last_trained.blobs) == (size, blobs)


def test_each_partition_has_a_last_batch_of_its_own(zone: Zone) -> None:
    for day in ("2026-11-20", "2026-11-21"):
        record_batch(zone.clients, a_batch(zone, day, NOON, partition=day))
    marked = a_batch(zone, "m", NOON + timedelta(hours=1), partition="2026-11-21")
    record_batch(zone.clients, marked.model_copy(update={"marker_at": NOON}))
    assert list_last_batches(zone.clients) == {
        zone.pipeline.name: {
            "2026-11-20": LastListing(listed_from=NOON, marker_at=None),
            "2026-11-21": LastListing(listed_from=NOON + timedelta(hours=1), marker_at=NOON),
        }
    }


def test_runs_whose_data_changed_are_counted_over_batches(zone: Zone) -> None:
    batch = a_batch(zone, "a", NOON, "started")
    record_batch(zone.clients, batch)
    for count in (1, 2):
        count_data_changed(
            zone.clients,
            CountDataChanged(pipeline=zone.pipeline.name, dataset=batch.dataset, in_a_row=count),
        )
        later = NOON + timedelta(hours=count)
        record_batch(zone.clients, a_batch(zone, f"b{count}", later, "started"))
        last = last_batch(zone.clients, zone.pipeline.name)
        assert last is not None
        assert last.data_changed_in_a_row == count
