from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.storage.blob import ContainerClient

from handlers.landing.batch_records import read_held
from handlers.landing.comparing import compare_batch
from handlers.landing.holding import (
    SUPERSEDED_KEPT,
    is_released,
    read_pause,
    release_held_batch,
    zones_to_resume,
)
from handlers.landing.zone_troubles import alert_operators
from handlers.operate.api import differences, pausing
from handlers.operate.api.pausing import pause_pipeline, resume_pipeline
from handlers.operate.api.requests import Answer
from handlers.platform import record_store
from handlers.platform.configuration.configurations import resolve_configuration
from handlers.platform.manifests import delete_manifest, find_line
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.difference import Difference
from orchestrations.contracts.holds import HoldReason
from orchestrations.contracts.landing import (
    AlertOperators,
    BatchComparison,
    CompareBatch,
    HoldBatch,
)
from orchestrations.names import alert_id, landing_instance
from tests.fakes.durable_client import TaskHub
from tests.local.handlers.zone_on_storage import Zone
from tests.unit.handlers.asking import ask, check_problem
from tests.unit.orchestrations.examples import with_rules


def compare(zone: Zone) -> BatchComparison:
    dataset = zone.freeze(later())
    rules = None
    if zone.pipeline.has_rules_for_data:
        rules = resolve_configuration(zone.clients, zone.pipeline.name).hash
    request = CompareBatch(pipeline=zone.pipeline.name, configuration=rules, dataset=dataset)
    return compare_batch(zone.clients, request)


def later() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=1)


def test_the_first_batch_is_compared_with_nothing(zone: Zone) -> None:
    zone.land("1.png")
    assert compare(zone) == BatchComparison(
        last_trained_blobs=None, only_deletions=False, data_changed_in_a_row=0, released=False
    )


def test_a_batch_that_only_lost_blobs_is_told_from_one_that_changed(zone: Zone) -> None:
    for number in range(5):
        zone.land(f"{number}.png", b"%d" % number)
    zone.close_batch()
    assert not compare(zone).only_deletions  # the very same content
    zone.delete("1.png")
    zone.land("2.png", b"2")  # written again, with the same content
    assert compare(zone).only_deletions
    assert compare(zone).last_trained_blobs == 5
    zone.land("3.png", b"other")
    assert not compare(zone).only_deletions
    zone.land("3.png", b"3")
    zone.delete("4.png")
    zone.land("5.png")
    assert not compare(zone).only_deletions


def test_what_a_trainer_refused_is_no_deletion(zone: Zone) -> None:
    for name in ("bad.png", "good.png"):
        zone.land(name)
    zone.refuse(zone.close_batch(), **{"bad.png": "no image"})
    comparison = compare(zone)
    assert not comparison.only_deletions
    assert comparison.last_trained_blobs == 2
    assert zone.freeze().quarantined == 1


def test_a_batch_is_checked_against_the_last_trained_one(zone: Zone) -> None:
    zone = with_zone_rules(
        zone,
        checks={"duplicates_at_most": 0.2, "bytes_of_a_file": {"at_least": 2}},
        settle={"minimum_change": {"files": 2}, "maximum_age_seconds": 3600},
    )
    for number in range(4):
        zone.land(f"{number}.png", b"file %d" % number)
    first = compare(zone)
    assert (first.failed_checks, first.too_little) == ((), None)
    trained = zone.close_batch()
    zone.land("copy.png", b"file 0")
    assert compare(zone).too_little == (
        "1 of 2 files have changed since the last training (settle.minimum_change)"
    )
    assert compare(zone).difference == (
        f"1 added, 0 removed, 0 changed, 0 moved, of 4 files in {trained.version}"
    )
    waiting = zone.hold(zone.close_batch(outcome="held"), "little-change")
    assert compare(zone).waiting_since == waiting.frozen_at
    zone.land("copy2.png", b"file 1")
    zone.land("small.png", b"1")
    dataset = zone.freeze(later())
    comparison = compare(zone)
    assert comparison.too_little is None
    duplicates, size = comparison.failed_checks
    assert "2 of 7 files twice" in duplicates
    assert "small.png has 1 bytes, not at_least 2" in size
    name = f"{dataset.manifest_path}/difference-from-{trained.version}.json"
    kept = Difference.from_dict(record_store.read(zone.clients.records, name))
    assert (kept.added.blobs, kept.duplicates_of_base.blobs) == (3, 2)
    delete_manifest(zone.clients, zone.pipeline.name, dataset.version)
    assert not list(zone.clients.records.list_blob_names(name_starts_with=dataset.manifest_path))


def with_zone_rules(zone: Zone, **sections: dict[str, Any]) -> Zone:
    return replace(zone, pipeline=with_rules(zone.pipeline, **sections))


def hold(zone: Zone, reason: HoldReason = "paused") -> Dataset:
    """Do the orchestrator's steps for a batch that is held."""
    zone.land("1.png")
    return zone.hold(zone.close_batch(outcome="held"), reason)


async def release(zone: Zone, hub: TaskHub, version: str) -> Answer:
    name, body = zone.pipeline.name, json.dumps({"dataset_version": version}).encode()
    return await ask(pausing.release, zone.clients, hub, zone.pipeline, name=name, body=body)


async def test_a_released_batch_gets_a_landing_that_may_train_on_it(zone: Zone) -> None:
    dataset, hub = hold(zone, "shrunk"), TaskHub()
    assert not compare(zone).released
    for _ in range(2):
        assert (await release(zone, hub, dataset.version)).status == 202
    landing = landing_instance(zone.pipeline.name)
    assert hub.started == [landing]
    assert hub.documents[landing]["input"]["opened_by"] == "release"
    assert compare(zone).released
    zone.land("2.png")
    assert not compare(zone).released  # the content differs


@pytest.mark.parametrize(
    ("version", "status", "words"),
    [("../x", 400, "dataset_version"), ("abc", 404, "holds no batch of dataset version abc")],
)
async def test_what_cannot_be_released_is_refused(
    zone: Zone, version: str, status: int, words: str
) -> None:
    hub = TaskHub()
    answer = await release(zone, hub, version)
    assert (answer.status, hub.started) == (status, [])
    assert words in answer.document["detail"]


def overwrite(
    zone: Zone, at: datetime, number: int, reason: HoldReason = "data-changed"
) -> Dataset:
    """Overwrite a blob, and do the orchestrator's steps for the batch, which is held."""
    zone.land("1.png", b"%d" % number)
    dataset = zone.hold(zone.freeze(at), reason)
    landing = landing_instance(zone.pipeline.name)
    request = AlertOperators(
        kind="batch-held",
        alert_id=alert_id("batch-held", landing, reason),
        pipeline=zone.pipeline.name,
        at=at,
        details={"landing": landing, "message": "the data keeps changing"},
    )
    alert_operators(zone.clients, request)
    return zone.record(dataset, outcome="held")


def alerts(zone: Zone) -> int:
    """The number of alerts: here they stay in the outbox, without a namespace."""
    zone.clients.background.wait_until_idle()
    return len(list(zone.clients.records.list_blob_names(name_starts_with="outbox/ops-alerts/")))


def names(zone: Zone, prefix: str) -> list[str]:
    below = f"{prefix}/{zone.pipeline.name}/"
    return list(zone.clients.records.list_blob_names(name_starts_with=below))


def test_a_blob_that_is_overwritten_for_half_an_hour_is_one_hold_with_one_alert(zone: Zone) -> None:
    begin = datetime(2026, 11, 27, tzinfo=UTC)
    every = timedelta(seconds=60)
    datasets = [overwrite(zone, begin + number * every, number) for number in range(28)]
    held = read_held(zone.clients, zone.pipeline.name, datasets[-1])
    assert held is not None
    assert (held.count, held.since) == (28, begin)
    assert alerts(zone) == 1
    assert len(names(zone, "held")) == 1
    kept = SUPERSEDED_KEPT // every + 2  # those of the last minutes, and the newest
    assert len(names(zone, "manifests")) <= 2 * kept
    assert len(names(zone, "batches")) <= kept
    assert find_line(zone.clients, datasets[-1], "1.png") is not None


def test_a_manifest_that_was_claimed_or_released_outlives_its_hold(zone: Zone) -> None:
    begin = datetime(2026, 11, 27, tzinfo=UTC)
    claimed, released = (overwrite(zone, begin, number) for number in (1, 2))
    zone.claim(claimed, "landing@x")
    assert release_held_batch(zone.clients, zone.pipeline.name, released.version, "y") is not None
    for number in (3, 4):
        overwrite(zone, begin + number * 60 * timedelta(minutes=1), number)
    for dataset in (claimed, released):
        assert find_line(zone.clients, dataset, "1.png") is not None


async def test_the_newest_batch_of_a_hold_is_released_and_named(zone: Zone) -> None:
    begin = datetime(2026, 11, 27, tzinfo=UTC)
    seen, newest = (overwrite(zone, begin + timedelta(seconds=n), n) for n in (1, 2))
    answer = await release(zone, TaskHub(), seen.version)
    assert answer.status == 202
    assert (answer.document["dataset_version"], answer.document["batches"]) == (newest.version, 2)
    assert is_released(zone.clients, zone.pipeline.name, newest.version)
    assert not is_released(zone.clients, zone.pipeline.name, seen.version)


def test_a_batch_that_is_held_during_a_release_is_released(
    zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = datetime(2026, 11, 27, tzinfo=UTC)
    first = overwrite(zone, begin, 1)
    create = record_store.create

    def meanwhile(records: ContainerClient, name: str, document: Any) -> bool:
        monkeypatch.setattr(record_store, "create", create)
        overwrite(zone, begin + timedelta(seconds=1), 2)
        return create(records, name, document)

    monkeypatch.setattr(record_store, "create", meanwhile)
    held = release_held_batch(zone.clients, zone.pipeline.name, first.version, "y")
    assert held is not None
    assert held.dataset.version != first.version
    assert is_released(zone.clients, zone.pipeline.name, held.dataset.version)


@pytest.mark.parametrize("end", ["released", "trained", "another reason"])
def test_the_next_hold_is_told_again(zone: Zone, end: str) -> None:
    begin = datetime(2026, 11, 27, tzinfo=UTC)
    first = overwrite(zone, begin, 1)
    if end == "released":
        release_held_batch(zone.clients, zone.pipeline.name, first.version, "y")
    elif end == "trained":
        zone.record(zone.freeze(begin + timedelta(minutes=1)), outcome="started")
        assert names(zone, "held") == []
    reason = "shrunk" if end == "another reason" else "data-changed"
    second = overwrite(zone, begin + timedelta(minutes=2), 2, reason)
    held = read_held(zone.clients, zone.pipeline.name, second)
    assert held is not None
    assert (held.count, held.since, held.is_released) == (1, second.frozen_at, False)
    assert alerts(zone) == 2


async def test_a_hold_of_an_earlier_release_is_shown_and_released(zone: Zone) -> None:
    zone.land("1.png")
    dataset = zone.close_batch(outcome="held")
    request = HoldBatch(
        pipeline=zone.pipeline.name, batch="b", dataset=dataset, reason="shrunk", message="m"
    )
    name = f"held/{zone.pipeline.name}/{dataset.version}.json"
    record_store.replace(zone.clients.records, name, request.to_dict())
    held = read_held(zone.clients, zone.pipeline.name, dataset)
    assert held is not None
    assert (held.count, held.reason) == (1, "shrunk")
    assert (await release(zone, TaskHub(), dataset.version)).status == 202


async def pause(zone: Zone, reason: str = "wrong upload", by: str = "ada") -> Answer:
    body = json.dumps({"by": by, "reason": reason}).encode()
    return await ask(
        pause_pipeline, zone.clients, None, zone.pipeline, name=zone.pipeline.name, body=body
    )


async def resume(zone: Zone, hub: TaskHub) -> Answer:
    return await ask(
        resume_pipeline,
        zone.clients,
        hub,
        zone.pipeline,
        name=zone.pipeline.name,
        headers={"x-ms-client-principal-name": "bob"},
    )


def why_paused(zone: Zone) -> str | None:
    request = CompareBatch(pipeline=zone.pipeline.name, dataset=zone.freeze())
    return compare_batch(zone.clients, request).paused


def soon() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=2)


async def test_a_pause_is_seen_by_landings_and_the_first_one_stays(zone: Zone) -> None:
    zone.land("1.png")
    assert why_paused(zone) is None
    first = await pause(zone)
    assert (first.status, first.document["changed"]) == (200, True)
    assert str(why_paused(zone)).startswith("paused by ada since 20")
    again = await pause(zone, reason="another", by="eve")
    assert (again.document["changed"], again.document["paused"]["by"]) == (False, "ada")
    assert (await pause(zone, reason="")).status == 400


async def test_what_was_held_is_landed_again_after_the_pause(zone: Zone) -> None:
    await pause(zone)
    dataset, hub = hold(zone), TaskHub()
    ended = await resume(zone, hub)
    landing = landing_instance(zone.pipeline.name)
    assert ended.document == {"paused": None, "changed": True, "landings": [landing]}
    assert hub.started == [landing]
    assert why_paused(zone) is None
    # Until it is listed again, reconciliation asks for it again.
    assert zones_to_resume(zone.clients, zone.pipeline.name) == [None]
    zone.close_batch(soon())
    assert zones_to_resume(zone.clients, zone.pipeline.name) == []
    assert read_held(zone.clients, zone.pipeline.name, dataset) is None
    assert record_store.read(zone.clients.records, f"paused/{zone.pipeline.name}.json") is None
    assert (await resume(zone, hub)).document["changed"] is False


async def test_a_batch_that_is_held_for_another_reason_since_stays_held(zone: Zone) -> None:
    await pause(zone)
    hold(zone)
    await resume(zone, TaskHub())
    dataset = hold(zone, "shrunk")
    zone.close_batch(soon(), outcome="held")
    assert zones_to_resume(zone.clients, zone.pipeline.name) == []
    held = read_held(zone.clients, zone.pipeline.name, dataset)
    assert held is not None
    assert held.reason == "shrunk"


async def test_a_pause_during_a_resumption_is_a_pause(zone: Zone) -> None:
    await pause(zone)
    hold(zone)
    await resume(zone, TaskHub())
    assert (await pause(zone, by="eve")).document["changed"] is True
    in_force = read_pause(zone.clients, zone.pipeline.name)
    assert in_force is not None
    assert in_force.by == "eve"
    assert zones_to_resume(zone.clients, zone.pipeline.name) == []


async def test_who_paused_and_resumed_is_kept(zone: Zone) -> None:
    await pause(zone)
    await resume(zone, TaskHub())
    kept = sorted(
        record_store.read_all(zone.clients.records, "actions/"), key=lambda each: each["at"]
    )
    assert [(each["action"], each["by"], each["reason"]) for each in kept] == [
        ("pause", "ada", "wrong upload"),
        ("resume", "bob", "no reason was given"),
    ]


async def test_two_versions_are_compared_on_request(zone: Zone) -> None:
    zone.land("a/1.png", b"one")
    first = zone.close_batch()
    zone.land("a/2.png", b"two")
    compare(zone)
    second = zone.freeze(later())

    async def difference(version: str, **query: str) -> Answer:
        return await ask(
            differences.get_difference,
            zone.clients,
            None,
            zone.pipeline,
            query=query,
            name=zone.pipeline.name,
            version=version,
        )

    landed = await difference(second.version)
    assert (landed.status, landed.document["base"]) == (200, first.version)
    assert landed.document["added"] == {"blobs": 1, "bytes": 3}
    reverse = await difference(first.version, base=second.version)
    assert reverse.document["removed"] == {"blobs": 1, "bytes": 3}
    check_problem(await difference("0" * 16), 404, "not-found", "no manifest")
    check_problem(await difference(second.version, base="0" * 16), 404, "not-found")
    check_problem(await difference("../" + second.version), 404, "not-found")
    check_problem(await difference(second.version, base="x"), 400, "invalid-request", "base")
