from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from handlers.triggers.blob_created import handle_blob_event
from handlers.triggers.explain import explain_blob
from handlers.triggers.problem_details import PROBLEM_TYPE
from tests.local.handlers.zone_on_storage import Zone
from tests.unit.handlers.durable_fake import TaskHub

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
_NUMBERS = itertools.count()


async def tell(zone: Zone, path: str, etag: str, at: datetime = START) -> None:
    event = zone.event(path, etag, sequencer=next(_NUMBERS), event_time=at)
    starter: Any = TaskHub()
    pipelines = {zone.pipeline.name: zone.pipeline}
    await handle_blob_event(zone.clients, pipelines, starter, event, now=at)


def outcome(zone: Zone, path: str) -> dict[str, Any]:
    (event,) = zone.explain(path)
    return event["outcome"]


async def test_before_any_window_an_event_is_pending(zone: Zone) -> None:
    await tell(zone, "1.png", zone.land("1.png"))
    assert outcome(zone, "1.png")["state"] == "pending"
    zone.close_window(START - SECOND)  # of what was there before, were there anything else
    assert outcome(zone, "1.png")["state"] == "run"


async def test_a_window_that_saw_nothing_of_it_leaves_it_pending(zone: Zone) -> None:
    zone.land("0.png")
    zone.close_window(START - SECOND)
    await tell(zone, "1.png", zone.land("1.png"))
    assert outcome(zone, "1.png")["state"] == "pending"


async def test_a_blob_that_was_trained_on_names_version_and_run(zone: Zone) -> None:
    await tell(zone, "1.png", zone.land("1.png"))
    dataset = zone.close_window(START + SECOND)
    zone.land("2.png")
    zone.close_window(START + 2 * SECOND)
    run = zone.run_of(dataset)
    assert outcome(zone, "1.png") == {
        "state": "run",
        "reason": f"part of dataset version {dataset.version}, which started run {run}",
        "dataset_version": dataset.version,
        "run": run,
    }


async def test_a_blob_written_while_its_zone_was_being_listed_is_in_that_window(zone: Zone) -> None:
    etag = zone.land("1.png")
    dataset = zone.close_window(START)
    await tell(zone, "1.png", etag, at=START + SECOND)
    found = outcome(zone, "1.png")
    assert (found["state"], found["dataset_version"]) == ("run", dataset.version)


async def test_content_that_was_trained_on_before_is_a_duplicate(zone: Zone) -> None:
    await tell(zone, "1.png", zone.land("1.png"))
    dataset = zone.close_window(START + SECOND)
    await tell(zone, "1.png", zone.land("1.png"), at=START + 2 * SECOND)
    zone.close_window(START + 3 * SECOND)
    first, second = (event["outcome"] for event in zone.explain("1.png"))
    assert (first["state"], second["state"]) == ("run", "duplicate")
    assert second["run"] == first["run"] == zone.run_of(dataset)


async def test_a_write_that_was_overwritten_before_the_freeze_is_superseded(zone: Zone) -> None:
    await tell(zone, "1.png", zone.land("1.png", b"one"))
    await tell(zone, "1.png", zone.land("1.png", b"two"), at=START + SECOND)
    zone.close_window(START + 2 * SECOND)
    states = [event["outcome"]["state"] for event in zone.explain("1.png")]
    assert states == ["superseded", "run"]


async def test_a_blob_that_was_gone_is_left_out(zone: Zone) -> None:
    await tell(zone, "1.png", zone.land("1.png"))
    await tell(zone, "2.png", zone.land("2.png"))
    zone.delete("1.png")
    zone.close_window(START + SECOND)
    assert outcome(zone, "1.png") == {
        "state": "left-out",
        "reason": "gone when the zone was listed",
    }
    assert outcome(zone, "2.png")["state"] == "run"


async def test_an_empty_zone_leaves_everything_out(zone: Zone) -> None:
    await tell(zone, "1.png", zone.land("1.png"))
    await tell(zone, "_SUCCESS", zone.land("_SUCCESS"))
    zone.delete("1.png")
    zone.close_window(START + SECOND)
    assert outcome(zone, "1.png")["state"] == "left-out"
    assert outcome(zone, "_SUCCESS") == {"state": "left-out", "reason": "no data was there"}


async def test_a_refused_file_says_so(zone: Zone) -> None:
    etag = zone.land("bad.png")
    zone.land("good.png")
    await tell(zone, "bad.png", etag)
    dataset = zone.close_window(START + SECOND)
    zone.refuse(dataset, **{"bad.png": "no image"})
    found = outcome(zone, "bad.png")
    assert found["state"] == "run"
    assert f"then left out: no image (run {zone.run_of(dataset)})" in found["reason"]


async def test_a_file_is_left_out_of_the_windows_after_it_was_refused(zone: Zone) -> None:
    etag = zone.land("bad.png")
    zone.land("good.png")
    zone.refuse(zone.close_window(START), **{"bad.png": "no image"})
    zone.close_window(START + SECOND)
    # By a clock that is ahead of the orchestration's.
    await tell(zone, "bad.png", etag, at=START + 2 * SECOND)
    zone.land("good.png", b"more")
    zone.close_window(START + 3 * SECOND)
    found = outcome(zone, "bad.png")
    assert found["state"] == "left-out"
    assert found["reason"].startswith("quarantined: no image (run ")


async def test_a_marker_is_told_by_the_batch_that_it_marked(zone: Zone) -> None:
    zone.land("1.png")
    await tell(zone, "_SUCCESS", zone.land("_SUCCESS", b""))
    dataset = zone.close_window(START + SECOND)
    found = outcome(zone, "_SUCCESS")
    assert (found["state"], found["run"]) == ("run", zone.run_of(dataset))
    assert found["reason"].startswith("the marker of dataset version")


async def test_a_decision_that_was_the_end_has_no_outcome(zone: Zone) -> None:
    etag = zone.land("1.png")
    await tell(zone, "1.png", etag)
    await tell(zone, "1.png", etag)
    zone.close_window(START + SECOND)
    first, second = zone.explain("1.png")
    assert (first["decision"], second["decision"]) == ("started", "duplicate")
    assert first["outcome"]["state"] == "run"
    assert second["outcome"] is None
    assert first["event_id"] in second["reason"]


def test_an_address_without_a_blob_is_400(zone: Zone) -> None:
    answer = explain_blob(zone.clients, {}, "landing")
    assert (answer.status, answer.media_type) == (400, PROBLEM_TYPE)
    assert answer.document["where"] == "blob"


@pytest.mark.parametrize("form", ["{container}/{blob}", "{account}{container}/{blob}?sv=1&sig=x"])
async def test_a_blob_is_named_by_path_or_by_url(zone: Zone, form: str) -> None:
    await tell(zone, "1.png", zone.land("1.png"))
    blob = zone.blob("1.png")
    address = form.format(account=zone.clients.blobs.url, container="landing", blob=blob)
    answer = explain_blob(zone.clients, {zone.pipeline.name: zone.pipeline}, address)
    assert answer.status == 200
    assert answer.document["blob"] == f"landing/{blob}"
    assert len(answer.document["events"]) == 1


def test_a_place_that_nobody_watches_names_those_that_are_watched(zone: Zone) -> None:
    answer = explain_blob(zone.clients, {zone.pipeline.name: zone.pipeline}, "elsewhere/1.png")
    assert answer.status == 200
    assert answer.document["pipeline"] is None
    assert f"landing/{zone.pipeline.source.prefix}" in answer.document["reason"]
