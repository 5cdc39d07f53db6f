from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from handlers.landing_zone.batch_records import (
    frozen_at,
    last_window,
    list_windows,
    read_window,
    record_window,
)
from orchestrations.contracts.landing import LandingResult, RecordWindow
from tests.local.handlers.zone_on_storage import Zone
from tests.unit.orchestrations.examples import DATASET

NOON = datetime(2026, 11, 21, 12, 0, 0, 123456, tzinfo=UTC)


def a_window(zone: Zone, name: str, at: datetime) -> RecordWindow:
    return RecordWindow(
        window=name,
        opened_at=at,
        opened_by="event",
        dataset=DATASET.model_copy(update={"frozen_at": at}),
        result=LandingResult(pipeline=zone.pipeline.name, outcome="empty"),
    )


def test_there_is_no_last_window_before_the_first(zone: Zone) -> None:
    assert last_window(zone.clients, zone.pipeline.name) is None
    assert list_windows(zone.clients, zone.pipeline.name) == []


def test_windows_come_in_the_order_of_their_freezes_whatever_the_order_of_records(
    zone: Zone,
) -> None:
    # The same moment in another timezone sorts the same.
    east = timezone(timedelta(hours=9))
    windows = [
        a_window(zone, "b", NOON),
        a_window(zone, "a", (NOON + timedelta(seconds=1)).astimezone(east)),
        a_window(zone, "c", NOON + timedelta(hours=1)),
    ]
    for window in reversed(windows):
        for _ in range(2):  # the second time as after a crash before the checkpoint
            record_window(zone.clients, window)
    neighbour = Zone(zone.clients, zone.pipeline.model_copy(update={"name": "neighbour"}))
    record_window(zone.clients, a_window(neighbour, "d", NOON + timedelta(hours=2)))

    names = list_windows(zone.clients, zone.pipeline.name)
    assert [read_window(zone.clients, name) for name in names] == windows
    assert last_window(zone.clients, zone.pipeline.name) == windows[-1]
    assert frozen_at(names[0]) == NOON.replace(microsecond=123000)
