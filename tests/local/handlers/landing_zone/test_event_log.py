from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from handlers.landing_zone import event_log
from handlers.landing_zone.event_log import Conflict, Decision, Entry, append, page_name, read_page
from tests.local.handlers.zone_on_storage import Zone

PAGE = page_name("digits", "landing", "digits/ü\n?.png")


def an_entry(event_id: str, decision: Decision = "merged") -> Entry:
    return Entry(
        event_id=event_id,
        etag="0x1",
        sequencer="01",
        size=1,
        event_time="2026-11-21T12:00:00+00:00",
        decided_at="2026-11-21T12:00:01+00:00",
        decision=decision,
        reason="“because”",
    )


def test_what_was_decided_is_read_again(zone: Zone) -> None:
    records = zone.clients.records
    assert read_page(records, PAGE).entries == []
    entries = [an_entry("e1"), an_entry("e2", "duplicate"), an_entry("e3")]
    for entry in entries:
        append(records, read_page(records, PAGE), entry)
    assert read_page(records, PAGE).entries == entries
    assert read_page(records, page_name("digits", "landing", "other")).entries == []


def test_a_decision_that_counts_is_not_written_on_what_was_not_read(zone: Zone) -> None:
    records = zone.clients.records
    missing = read_page(records, PAGE)
    append(records, missing, an_entry("e1"))
    with pytest.raises(Conflict):
        append(records, missing, an_entry("e2"))
    stale = read_page(records, PAGE)
    append(records, stale, an_entry("e3", "duplicate"))
    with pytest.raises(Conflict):
        append(records, stale, an_entry("e4", "started"))
    assert [entry.event_id for entry in read_page(records, PAGE).entries] == ["e1", "e3"]


def test_the_other_decisions_never_conflict(zone: Zone) -> None:
    records = zone.clients.records
    missing = read_page(records, PAGE)
    others: list[Decision] = ["filtered", "duplicate", "superseded"]
    for decision in others:
        append(records, missing, an_entry(decision, decision))
    assert [entry.decision for entry in read_page(records, PAGE).entries] == others


def test_a_page_whose_writer_died_after_creating_it_is_as_good_as_missing(zone: Zone) -> None:
    records = zone.clients.records
    records.get_blob_client(PAGE).create_append_blob()
    empty = read_page(records, PAGE)
    append(records, empty, an_entry("e1"))
    with pytest.raises(Conflict):
        append(records, empty, an_entry("e2"))


def test_of_many_who_read_the_same_page_one_writes(zone: Zone) -> None:
    records = zone.clients.records
    page = read_page(records, PAGE)

    def write(number: int) -> bool:
        try:
            event_log.append(records, page, an_entry(f"e{number}"))
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(write, range(16))) == 1
    assert len(read_page(records, PAGE).entries) == 1
