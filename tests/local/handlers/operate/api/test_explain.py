from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.exceptions import ResourceNotFoundError

from handlers.landing.batch_records import BATCHES_SEARCHED
from handlers.landing.blob_created import handle_blob_events
from handlers.landing.zone_troubles import alert_operators
from handlers.operate.api.explain import explain
from handlers.operate.api.requests import PROBLEM_TYPE, Answer
from handlers.platform import tags
from orchestrations.contracts.landing import AlertOperators
from orchestrations.names import landing_instance
from tests.fakes.durable_client import TaskHub
from tests.local.handlers.zone_on_storage import Zone
from tests.unit.handlers import asking

HOUR = timedelta(hours=1)


def soon() -> datetime:
    """A time after every write so far; Last-Modified has whole seconds."""
    return datetime.now(UTC) + timedelta(seconds=1)


async def deliver(zone: Zone, path: str, etag: str, **changes: Any) -> None:
    hub: Any = TaskHub()
    pipelines = {zone.pipeline.name: zone.pipeline}
    event = zone.event(path, etag, **changes)
    await handle_blob_events(zone.clients, pipelines, hub, [event], now=datetime.now(UTC))


async def ask(zone: Zone, address: str) -> Answer:
    return await asking.ask(explain, zone.clients, None, zone.pipeline, query={"blob": address})


async def test_a_blob_that_was_trained_on_names_batch_version_and_run(zone: Zone) -> None:
    await deliver(zone, "1.png", zone.land("1.png"))
    dataset = zone.close_batch(soon())
    run = zone.run_of(dataset)
    found = await zone.explain("1.png")
    assert (found["state"], found["run"], found["dataset_version"]) == (
        "run",
        run,
        dataset.version,
    )
    assert found["blob"] == f"landing/{zone.blob('1.png')}"
    assert found["reason"] == f"part of dataset version {dataset.version}, which started run {run}"
    (event,) = found["events"]
    assert (event["decision"], event["change"]) == ("opened", "created")


async def test_a_blob_without_events_was_found_by_a_listing(zone: Zone) -> None:
    zone.land("1.png")
    zone.close_batch(soon(), opened_by="reconciliation")
    found = await zone.explain("1.png")
    assert (found["state"], found["opened_by"], found["events"]) == ("run", "reconciliation", [])
    assert "no event of it was kept" in found["reason"]


async def test_before_any_batch_a_blob_is_pending(zone: Zone) -> None:
    await deliver(zone, "1.png", zone.land("1.png"))
    found = await zone.explain("1.png")
    assert (found["state"], len(found["events"])) == ("pending", 1)
    assert "the marker _SUCCESS" in found["reason"]
    zone.rules("source", marker=None)
    assert "quiet for 10 s" in (await zone.explain("1.png"))["reason"]
    zone.close_batch(datetime.now(UTC) - HOUR)  # frozen before the blob was written
    assert (await zone.explain("1.png"))["state"] == "pending"


async def test_content_that_was_trained_on_before_is_a_duplicate(zone: Zone) -> None:
    zone.land("1.png")
    dataset = zone.close_batch(datetime.now(UTC) - HOUR)
    zone.land("1.png")
    zone.close_batch(soon())
    found = await zone.explain("1.png")
    assert (found["state"], found["run"]) == ("duplicate", zone.run_of(dataset))
    assert f"request a run of {zone.pipeline.name} with a reason" in found["reason"]


async def test_a_blob_that_no_pattern_takes_is_filtered(zone: Zone) -> None:
    zone.rules("source", include=["*.png"])
    await deliver(zone, "notes.txt", zone.land("notes.txt"))
    found = await zone.explain("notes.txt")
    assert found["state"] == "filtered"
    assert "*.png" in found["reason"]
    assert found["events"][0]["decision"] == "filtered"


@pytest.mark.parametrize(("path", "metadata"), [("7/", {}), ("7", {"Hdi_isfolder": "True"})])
async def test_a_folder_is_filtered(zone: Zone, path: str, metadata: dict[str, str]) -> None:
    landing = zone.clients.blobs.get_container_client("landing")
    landing.upload_blob(zone.blob(path), b"", metadata=metadata)
    assert (await zone.explain(path))["reason"] == "stands for a folder"


async def test_a_missing_blob_names_the_last_version_that_had_it(zone: Zone) -> None:
    assert (await zone.explain("1.png"))["state"] == "missing"
    zone.land("1.png")
    dataset = zone.close_batch(soon())
    zone.delete("1.png")
    deleted = {"event_type": "Microsoft.Storage.BlobDeleted", "data": {"api": "DeleteBlob"}}
    await deliver(zone, "1.png", "", **deleted)
    found = await zone.explain("1.png")
    assert (found["state"], found["dataset_version"]) == ("missing", dataset.version)
    assert [event["change"] for event in found["events"]] == ["deleted"]


async def test_a_refused_file_says_who_refused_it(zone: Zone) -> None:
    zone.land("bad.png")
    zone.land("good.png")
    dataset = zone.close_batch(soon())
    zone.refuse(dataset, **{"bad.png": "no image"})
    found = await zone.explain("bad.png")
    assert found["state"] == "run"
    assert f"left out of later batches: no image (run {zone.run_of(dataset)})" in found["reason"]


async def test_a_file_whose_batch_is_long_gone_is_quarantined(zone: Zone) -> None:
    zone.land("bad.png")
    zone.land("good.png")
    zone.refuse(zone.close_batch(datetime.now(UTC) - HOUR), **{"bad.png": "no image"})
    found = await zone.explain("bad.png")
    assert found["state"] == "quarantined"
    assert "no image" in found["reason"]


async def test_a_marker_names_the_batch_that_it_completed(zone: Zone) -> None:
    zone.land("1.png")
    zone.land("_SUCCESS", b"")
    assert (await zone.explain("_SUCCESS"))["state"] == "pending"
    landing = zone.clients.blobs.get_container_client("landing")
    written = landing.get_blob_client(zone.blob("_SUCCESS")).get_blob_properties().last_modified
    dataset = zone.close_batch(soon(), marker_at=written)
    found = await zone.explain("_SUCCESS")
    assert (found["state"], found["run"]) == ("run", zone.run_of(dataset))


async def test_a_held_batch_says_why(zone: Zone) -> None:
    zone.land("1.png")
    dataset = zone.close_batch(soon(), outcome="held")
    zone.hold(dataset, "shrunk", "the batch has 1 blobs and the last one 9")
    found = await zone.explain("1.png")
    assert found["state"] == "held"
    assert "the last one 9" in found["reason"]


async def test_only_deletions_are_no_reason_to_train(zone: Zone) -> None:
    zone.land("1.png")
    zone.close_batch(soon(), outcome="only-deletions")
    found = await zone.explain("1.png")
    assert (found["state"], found["run"]) == ("left-out", None)


async def test_a_partition_that_is_not_taken_is_left_out(zone: Zone) -> None:
    zone.rules("source", partitions="date=%Y-%m-%d")
    zone.rules("dataset", newest_partitions=1)
    for day in (20, 21):
        zone.land(f"date=2026-11-{day}/1.png")
    zone.close_batch(soon())
    old, new = [await zone.explain(f"date=2026-11-{day}/1.png") for day in (20, 21)]
    assert (old["state"], old["partition"]) == ("left-out", "2026-11-20")
    assert "newest_partitions" in old["reason"]
    assert new["state"] == "run"


async def test_copies_of_an_event_are_listed_once(zone: Zone) -> None:
    etag = zone.land("1.png")
    for _ in range(3):
        await deliver(zone, "1.png", etag)
    assert len((await zone.explain("1.png"))["events"]) == 1


class Registry:
    """A model registry with one version per dataset version; versions begin at 7."""

    def __init__(self, *dataset_versions: str) -> None:
        self.models = {
            str(version): SimpleNamespace(
                name="digits",
                version=str(version),
                tags={tags.DATASET_VERSION: dataset, tags.RUN: "run"},
                properties={},
            )
            for version, dataset in enumerate(dataset_versions, 7)
        }

    def get(self, _: str, version: str) -> Any:
        if version not in self.models:
            raise ResourceNotFoundError
        return self.models[version]

    def list(self, _: str, **__: Any) -> Any:
        return iter(self.models.values())


def put_models(zone: Zone, *dataset_versions: str) -> None:
    vars(zone.clients)["ml"] = SimpleNamespace(models=Registry(*dataset_versions))


async def test_the_models_that_saw_a_blob_are_named(zone: Zone) -> None:
    etag = zone.land("1.png")
    first = zone.close_batch(datetime.now(UTC) - HOUR)
    zone.land("2.png")
    both = zone.close_batch(soon())
    put_models(zone, first.version, both.version)
    found = await zone.explain("1.png")
    assert [(each["version"], each["stage"]) for each in found["models"]] == [
        ("8", "champion"),
        ("7", "former"),
    ]
    assert {each["etag"] for each in found["models"]} == {etag}
    assert all(each["is_current"] for each in found["models"])
    found = await zone.explain("2.png")
    assert [each["version"] for each in found["models"]] == ["8"]
    assert found["model"] == {"name": "digits", "version": "8"}


async def test_a_blob_that_was_overwritten_is_not_what_the_model_saw(zone: Zone) -> None:
    zone.land("1.png")
    put_models(zone, zone.close_batch(soon()).version)
    zone.land("1.png", b"overwritten since")
    (seen,) = (await zone.explain("1.png"))["models"]
    assert not seen["is_current"]


async def test_without_azure_ml_the_models_are_not_known(zone: Zone) -> None:
    zone.land("1.png")
    zone.close_batch(soon())
    found = await zone.explain("1.png")
    assert (found["state"], found["models"], found["model"]) == ("run", None, None)


@pytest.mark.parametrize(
    ("path", "model", "contained"),
    [("1.png", "7", True), ("2.png", "7", False), ("1.png", "8", None)],
)
async def test_whether_a_blob_is_in_a_model_is_answered_by_its_dataset(
    zone: Zone, path: str, model: str, *, contained: bool | None
) -> None:
    etag = zone.land("1.png")
    dataset = zone.close_batch(soon())
    put_models(zone, dataset.version)
    zone.land("1.png", b"overwritten since")
    found = (await zone.explain(path, model=model))["in_model"]
    assert found["contained"] is contained
    assert found["etag"] == (etag if contained else None)


async def test_an_address_without_a_blob_is_400(zone: Zone) -> None:
    answer = await ask(zone, "landing")
    assert (answer.status, answer.media_type) == (400, PROBLEM_TYPE)
    assert answer.document["where"] == "blob"


async def test_an_unwatched_address_names_the_watched_ones(zone: Zone) -> None:
    answer = await ask(zone, "elsewhere/1.png")
    assert (answer.status, answer.document["state"]) == (200, "unwatched")
    assert f"landing/{zone.pipeline.source.prefix}" in answer.document["reason"]


async def test_a_blob_is_searched_in_the_batches_of_its_own_partition(zone: Zone) -> None:
    zone.rules("source", partitions="date=%Y-%m-%d", batch="partition", marker=None)
    days = [f"2026-10-{day:02}" for day in range(1, 31)]
    for day in days:
        zone.land(f"date={day}/1.png", day.encode())
    now = soon()
    runs = {}
    for number, day in enumerate(days):
        at = now + timedelta(milliseconds=number)
        runs[day] = zone.run_of(zone.close_batch(at, partition=day))
    for day in (days[0], days[25], days[-1]):
        found = await zone.explain(f"date={day}/1.png")
        assert (found["state"], found["run"]) == ("run", runs[day]), day


async def test_a_blob_that_only_a_later_partitions_dataset_has_is_found_there(zone: Zone) -> None:
    zone.rules("source", partitions="date=%Y-%m-%d", batch="partition", marker=None)
    zone.rules("dataset", last_days=2)
    for day in (20, 21):
        zone.land(f"date=2026-11-{day}/1.png")
    dataset = zone.close_batch(soon(), partition="2026-11-21")
    found = await zone.explain("date=2026-11-20/1.png")
    assert (found["state"], found["run"]) == ("run", zone.run_of(dataset))


async def test_a_blob_that_was_trained_on_after_many_held_batches_is_not_held(zone: Zone) -> None:
    zone.rules("source", marker=None)
    zone.land("1.png")
    now = soon()
    for number in range(BATCHES_SEARCHED + 1):
        zone.land("2.png", b"%d" % number)
        dataset = zone.freeze(now + timedelta(milliseconds=number))
        zone.hold(zone.record(dataset, outcome="held"))
    trained = zone.close_batch(now + timedelta(seconds=1))
    found = await zone.explain("1.png")
    assert (found["state"], found["run"]) == ("run", zone.run_of(trained))


async def test_the_marker_of_a_held_batch_is_held(zone: Zone) -> None:
    zone.land("1.png")
    zone.land("_SUCCESS", b"")
    landing = zone.clients.blobs.get_container_client("landing")
    written = landing.get_blob_client(zone.blob("_SUCCESS")).get_blob_properties().last_modified
    dataset = zone.close_batch(soon(), marker_at=written, outcome="held")
    zone.hold(dataset, "shrunk", "too few blobs")
    found = await zone.explain("_SUCCESS")
    assert (found["state"], found["run"]) == ("held", None)
    assert "the marker of this batch" in found["reason"]
    assert "too few blobs" in found["reason"]


async def test_a_pending_blob_says_why_its_landing_fails(zone: Zone) -> None:
    zone.land("1.png")
    landing = landing_instance(zone.pipeline.name)
    request = AlertOperators(
        kind="landing-failed",
        alert_id="x",
        pipeline=zone.pipeline.name,
        at=datetime.now(UTC),
        details={"landing": landing, "message": "403: a role is missing"},
    )
    alert_operators(zone.clients, request)
    found = await zone.explain("1.png")
    assert found["state"] == "pending"
    assert "the landing fails since" in found["reason"]
    assert "403: a role is missing" in found["reason"]


@pytest.mark.parametrize("name", ["a://b", "https://elsewhere/1.png", "q?a=b#c", "%2F", "//x"])
async def test_a_name_may_look_like_an_address(zone: Zone, name: str) -> None:
    zone.rules("source", marker=None)
    zone.land(name)
    dataset = zone.close_batch(soon())
    found = await ask(zone, f"landing/{zone.blob(name)}")
    assert found.document["run"] == zone.run_of(dataset)
