"""Blobs are forgotten on the storage part, by the real activity and the real freeze."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from handlers.landing import forgetting
from handlers.landing.event_records import Entry, append_to_log, read_log
from handlers.landing.forgetting import (
    CONTENTS,
    count_contents,
    forget_blobs,
    keep_request,
    read_request,
    read_versions,
)
from handlers.platform.manifests import read_manifest_from
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.forgetting import ForgetBlobs, ForgetProgress, ForgetRequest
from tests.local.handlers.landing.freezing_process import Process
from tests.local.handlers.zone_on_storage import Zone

LATER = timedelta(minutes=1)


def ask_to_forget(zone: Zone, *paths: str, request: str = "forget-1") -> str:
    blobs = {zone.deploy(): [zone.blob(path) for path in paths]}
    record = ForgetRequest(
        id=request,
        at=datetime.now(UTC),
        by="ada",
        reason="a person asked",
        blobs=blobs,
        asked_blobs=len(paths),
    )
    keep_request(zone.clients, record)
    return request


def pieces(zone: Zone, request: str) -> Iterator[ForgetProgress]:
    """The pieces of a request's work, each done twice, as after a crash."""
    progress = ForgetProgress()
    while progress.step != "done":
        asked = ForgetBlobs(request=request, progress=progress)
        again = forget_blobs(zone.clients, asked)
        progress = forget_blobs(zone.clients, asked)
        assert progress == again
        yield progress


def paths(zone: Zone, dataset: Dataset) -> list[str]:
    return [line.path for line in read_manifest_from(zone.clients, dataset, "")]


@pytest.mark.parametrize("manifests_per_piece", [1, 100])
def test_what_is_forgotten_is_in_no_later_manifest_whatever_its_name(
    zone: Zone, manifests_per_piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter(range(1_000_000))
    monkeypatch.setattr(forgetting, "PIECE_SECONDS", manifests_per_piece + 0.5)
    monkeypatch.setattr(forgetting.time, "monotonic", lambda: float(next(ticks)))
    zone.rules("dataset", freeze="copy")
    zone.land("a/1.png", b"private")
    zone.land("a/2.png", b"other")
    first = zone.record(Process(zone).freeze())
    zone.land("a/1.png", b"private, too")
    second = zone.record(Process(zone).freeze())
    zone.land("b/same.png", b"private")
    third = zone.record(Process(zone).freeze())
    zone.delete("a/1.png")
    fourth = zone.record(Process(zone).freeze())
    request = ask_to_forget(zone, "a/1.png")
    done = list(pieces(zone, request))
    assert (len(done) > 3) == (manifests_per_piece == 1)
    assert count_contents(zone.clients, request) == 2
    found = {each.version: each.blobs for each in read_versions(zone.clients, request)}
    assert found == {first.version: 1, second.version: 1, third.version: 2, fourth.version: 1}
    copies = zone.clients.records.list_blob_names(name_starts_with="frozen/")
    assert len(list(copies)) == 1
    zone.land("c/again.png", b"private")
    zone.rules("dataset", freeze="reference")
    later = zone.freeze(datetime.now(UTC) + LATER)
    assert paths(zone, later) == ["a/2.png"]
    assert later.quarantined == 2
    record = read_request(zone.clients, request)
    assert record is not None
    assert record.done_at is not None
    assert record.blobs == {zone.pipeline.name: []}


def test_a_freeze_that_began_before_is_overtaken(zone: Zone) -> None:
    zone.land("1.png", b"private")
    zone.land("2.png")
    before = datetime.now(UTC)
    assert paths(zone, zone.freeze(before)) == ["1.png", "2.png"]
    list(pieces(zone, ask_to_forget(zone, "1.png")))
    zone.land("3.png")
    with pytest.raises(AssertionError):  # no dataset
        zone.freeze(before)
    assert paths(zone, zone.freeze(before + LATER)) == ["2.png", "3.png"]


async def test_explain_says_so_and_the_event_log_has_no_names(zone: Zone) -> None:
    etags = {path: zone.land(path, path.encode()) for path in ("1.png", "2.png")}
    now = datetime.now(UTC)
    zone.record(zone.freeze(now))
    records, name = zone.clients.records, zone.pipeline.name
    entries = [
        Entry(
            event_id=path,
            change="BlobCreated",
            blob=zone.blob(path),
            etag=etag,
            event_time=now.isoformat(),
            decided_at=now.isoformat(),
            decision="opened",
            reason="",
        )
        for path, etag in etags.items()
    ]
    append_to_log(records, name, entries, at=now)
    list(pieces(zone, ask_to_forget(zone, "1.png")))
    append_to_log(records, name, entries[1:], at=now)
    logged = [
        entry.blob
        for path in etags
        for entry in read_log(records, name, zone.blob(path), since=now, until=now)
    ]
    assert logged == [zone.blob("2.png")] * 2
    explained = await zone.explain("1.png")
    assert explained["state"] == "left-out"
    assert "forgotten by request forget-1" in explained["reason"]
    assert (await zone.explain("2.png"))["state"] == "run"


def test_a_second_request_adds_its_contents(zone: Zone) -> None:
    for path in ("1.png", "2.png", "3.png"):
        zone.land(path, path.encode())
    for number in (1, 2):
        list(pieces(zone, ask_to_forget(zone, f"{number}.png", request=f"forget-{number}")))
    assert paths(zone, zone.freeze(datetime.now(UTC) + LATER)) == ["3.png"]
    assert zone.clients.records.get_blob_client(CONTENTS).exists()
