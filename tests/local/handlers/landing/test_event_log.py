from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from azure.core.exceptions import HttpResponseError

from handlers.landing import event_log
from handlers.landing.event_log import Entry, append, read
from tests.local.handlers.zone_on_storage import Zone

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

BLOB = "digits/ü\n?.png"
AT = datetime(2026, 11, 21, 12, 59, 59, tzinfo=UTC)
HOUR = timedelta(hours=1)


def an_entry(event_id: str, blob: str = BLOB) -> Entry:
    return Entry(
        event_id=event_id,
        change="created",
        blob=blob,
        etag="0x1",
        event_time="2026-11-21T12:00:00+00:00",
        decided_at="2026-11-21T12:00:01+00:00",
        decision="merged",
        reason="“because”",
    )


def ids(zone: Zone, since: datetime, until: datetime, blob: str = BLOB) -> list[str]:
    found = read(zone.clients.records, "digits", blob, since=since, until=until)
    return [entry.event_id for entry in found]


def test_what_was_decided_on_a_blob_is_read_again(zone: Zone) -> None:
    entries = [an_entry("e1"), an_entry("e2", "digits/other.png"), an_entry("e3")]
    append(zone.clients.records, "digits", entries, at=AT)
    found = list(read(zone.clients.records, "digits", BLOB, since=AT, until=AT))
    assert found == [entries[0], entries[2]]


def test_only_the_hours_that_are_asked_for_are_read(zone: Zone) -> None:
    for hour in range(4):
        append(zone.clients.records, "digits", [an_entry(f"e{hour}")], at=AT + hour * HOUR)
    append(zone.clients.records, "digits-b", [an_entry("theirs")], at=AT)
    assert ids(zone, AT, AT + HOUR) == ["e0", "e1"]
    assert ids(zone, AT + 2 * HOUR, AT + 9 * HOUR) == ["e2", "e3"]
    assert ids(zone, AT + 8 * HOUR, AT + 9 * HOUR) == []


def test_many_decisions_are_one_block(zone: Zone) -> None:
    entries = [an_entry(f"e{number}") for number in range(1000)]
    append(zone.clients.records, "digits", entries, at=AT)
    (blob,) = zone.clients.records.list_blobs(name_starts_with="events/")
    client = zone.clients.records.get_blob_client(blob.name)
    assert client.get_blob_properties().append_blob_committed_block_count == 1
    assert len(ids(zone, AT, AT)) == 1000


def test_more_than_a_block_holds_are_several(zone: Zone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "BLOCK_LIMIT_BYTES", 700)
    append(zone.clients.records, "digits", [an_entry(f"e{n}") for n in range(10)], at=AT)
    assert ids(zone, AT, AT) == [f"e{n}" for n in range(10)]


def test_writers_at_the_same_time_lose_nothing(zone: Zone) -> None:
    def write(number: int) -> None:
        append(zone.clients.records, "digits", [an_entry(f"e{number}")], at=AT)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(40)))
    assert sorted(ids(zone, AT, AT)) == sorted(f"e{number}" for number in range(40))


class FullFile:
    """The records container; the first blob of an hour has the maximum number of blocks."""

    def __init__(self, records: ContainerClient) -> None:
        self.records = records

    def get_blob_client(self, name: str) -> Any:
        if name.endswith("_0000.jsonl"):
            return self
        return self.records.get_blob_client(name)

    def append_block(self, _: bytes) -> None:
        error = HttpResponseError("The committed block count cannot exceed the maximum limit")
        error.error_code = "BlockCountExceedsLimit"  # pyright: ignore[reportAttributeAccessIssue] - as the SDK sets it
        raise error


def test_a_full_file_is_followed_by_another(zone: Zone) -> None:
    full: Any = FullFile(zone.clients.records)
    append(full, "digits", [an_entry("e1")], at=AT)
    (name,) = zone.clients.records.list_blob_names(name_starts_with="events/")
    assert name.endswith("_0001.jsonl")
    assert ids(zone, AT, AT) == ["e1"]
