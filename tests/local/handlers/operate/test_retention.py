from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from handlers.operate import retention, retention_kinds
from handlers.operate.retention import INTERVAL, begin_pass, purge_instances, remove_old_records
from handlers.platform import record_store, tags
from handlers.platform.manifests import RENEWED_AFTER, ManifestWriter
from handlers.platform.run_records import add_to_record
from handlers.rollout.endpoint_claims import claim_endpoint
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.rollouts import ClaimEndpoint
from orchestrations.contracts.run_states import RunState
from orchestrations.contracts.training import RunRecord
from tests.fakes.azure_ml import Workspace, refusal
from tests.fakes.durable_client import TaskHub
from tests.local.handlers.zone_on_storage import WORKSPACE_CONTAINER, Zone
from tests.unit.orchestrations.examples import run_status

# A time at which every blob of the tests is old: the service sets the write times.
LATER = datetime.now(UTC) + timedelta(days=1000)


@pytest.fixture
def zone(zone: Zone, monkeypatch: pytest.MonkeyPatch) -> Zone:
    vars(zone.clients).update(
        ml=Workspace(), default_datastore=SimpleNamespace(container_name=WORKSPACE_CONTAINER)
    )
    monkeypatch.setattr(retention_kinds, "NEWEST_BATCHES", 1)
    monkeypatch.setattr(retention, "PIECE_BLOBS", 2)
    return zone


def rounds(zone: Zone, now: datetime = LATER, *, seconds_per_call: float = 0.0) -> int:
    """Rounds of the reconciler until the pass is over; returns the number of deleted blobs."""
    begin_pass(zone.clients, now=now)
    deleted = 0
    for _ in range(1000):
        clock = itertools.count(0.0, seconds_per_call)
        deleted += remove_old_records(
            zone.clients,
            {zone.pipeline.name: zone.pipeline},
            now=now,
            monotonic=lambda clock=clock: next(clock),
        )
        if begin_pass(zone.clients, now=now + INTERVAL):
            record_store.delete(zone.clients.records, retention.RECORD)
            return deleted
    raise AssertionError("the pass does not end")


def lay(zone: Zone, *names: str) -> None:
    for name in names:
        zone.clients.records.upload_blob(name, b"{}", overwrite=True)


def leave(zone: Zone, *names: str) -> None:
    """Leave files of jobs."""
    container = zone.clients.workspace_blobs.get_container_client(WORKSPACE_CONTAINER)
    for name in names:
        container.upload_blob(f"landfall/{zone.pipeline.name}/{name}", b"x", overwrite=True)


def records(zone: Zone) -> set[str]:
    return set(zone.clients.records.list_blob_names())


def files(zone: Zone) -> set[str]:
    """The files of jobs that are left."""
    container = zone.clients.workspace_blobs.get_container_client(WORKSPACE_CONTAINER)
    folder = f"landfall/{zone.pipeline.name}/"
    names = container.list_blob_names(name_starts_with=folder)
    return {name.removeprefix(folder) for name in names}


def train(zone: Zone, content: str, state: RunState = "not_promoted") -> Dataset:
    """A batch and its run, with everything that they leave."""
    zone.land("1.png", content.encode())
    dataset = zone.close_batch()
    run = zone.run_of(dataset)
    status = run_status(run, state, dataset.frozen_at)
    add_to_record(zone.clients, RunRecord(status=status, started_at=dataset.frozen_at))
    lay(zone, f"runs/{run}/results.json")
    leave(zone, f"{run}/results/metrics.json", f"{dataset.version}/checkpoints/1/a.pt")
    return dataset


def register(zone: Zone, dataset: Dataset) -> None:
    model = SimpleNamespace(
        name=zone.pipeline.model.name,
        version="1",
        tags={tags.RUN: zone.run_of(dataset), tags.DATASET_VERSION: dataset.version},
    )
    zone.clients.ml.models.store[zone.pipeline.model.name, "1"] = model  # pyright: ignore[reportAttributeAccessIssue] - the fake's


def about(zone: Zone, dataset: Dataset) -> set[str]:
    """The folders of records and files that are about a dataset version or its run."""
    return {name.partition("/")[0] for name in records(zone) if dataset.version in name} | {
        name.split("/")[1] for name in files(zone) if dataset.version in name
    }


CLAIM = {"dataset-claims"}


@pytest.mark.parametrize("seconds_per_call", [0.0, 40.0])
def test_what_an_old_run_left_goes_except_its_claim(zone: Zone, seconds_per_call: float) -> None:
    first, last = train(zone, "first"), train(zone, "last")
    lay(zone, f"events/{zone.pipeline.name}/2026-01-01T01_0000.jsonl", "actions/1_a")
    lay(zone, "requests/r.json", f"freezing/{zone.pipeline.name}/f/part-1", "discarded/1.json")
    lay(zone, f"released/{zone.pipeline.name}/{first.version}.json", "released/p/other.json")
    lay(zone, "webhooks/disabled/watch", "paused/p.json")
    before = about(zone, first)
    assert {"manifests", "runs", "run-index", "claim-index", "results", "checkpoints"} < before
    assert rounds(zone, seconds_per_call=seconds_per_call) > 10
    assert about(zone, first) == CLAIM
    assert about(zone, last) == CLAIM | {"manifests"}  # the zone's last batch
    left = {name.partition("/")[0] for name in records(zone)}
    kept = {"configurations", "last-batches", "manifests", "paused", "released", "run-changes"}
    assert left == CLAIM | kept | {"webhooks"}
    assert rounds(zone) == 0


def test_before_its_days_are_over_nothing_goes(zone: Zone) -> None:
    train(zone, "first")
    train(zone, "last")
    before = records(zone), files(zone)
    assert rounds(zone, datetime.now(UTC) + timedelta(days=6)) == 0
    assert (records(zone), files(zone)) == before
    # The files for the next attempt are the first to go.
    rounds(zone, datetime.now(UTC) + timedelta(days=31))
    assert records(zone) == before[0]
    assert {name.split("/")[1] for name in files(zone)} == {"results"}


def test_the_lineage_of_a_registered_model_stays(zone: Zone) -> None:
    first, _ = train(zone, "first"), train(zone, "last")
    register(zone, first)
    rounds(zone)
    assert about(zone, first) == CLAIM | {"manifests", "runs", "run-index", "results"}


def test_an_archived_model_keeps_its_files_and_its_run_but_not_its_manifest(zone: Zone) -> None:
    first, _ = train(zone, "first"), train(zone, "last")
    register(zone, first)
    models: Any = zone.clients.ml.models
    models.archived.add((zone.pipeline.model.name, "1"))
    rounds(zone)
    assert about(zone, first) == CLAIM | {"runs", "run-index", "results"}


def test_what_a_run_needs_that_has_not_ended_stays(zone: Zone) -> None:
    first, _ = train(zone, "first", "running"), train(zone, "last")
    rounds(zone)
    kept = {"manifests", "runs", "run-index", "results", "checkpoints"}
    assert about(zone, first) == CLAIM | kept


def test_a_held_batch_that_is_the_last_of_its_zone_stays(zone: Zone) -> None:
    zone.land("1.png")
    dataset = zone.record(zone.freeze(), outcome="held")
    zone.hold(dataset)
    rounds(zone)
    assert about(zone, dataset) == {"manifests"}
    assert any(name.startswith(f"held/{zone.pipeline.name}/") for name in records(zone))


def test_the_records_of_the_rollout_that_holds_an_endpoint_stay(zone: Zone) -> None:
    for rollout in ("rollout-e-1", "rollout-e-2"):
        lay(zone, f"rollouts/{rollout}/asked.json", f"rollout-index/1_{rollout}")
    request = ClaimEndpoint(endpoint="e", rollout="rollout-e-2", version=2)
    assert claim_endpoint(zone.clients, request).granted
    rounds(zone)
    assert records(zone) == {
        "rollouts/claims/e.json", "rollouts/rollout-e-2/asked.json", "rollout-index/1_rollout-e-2"
    }  # fmt: skip


def test_nothing_goes_while_it_is_unknown_what_is_in_service(zone: Zone) -> None:
    train(zone, "first")
    train(zone, "last")
    before = records(zone)

    def outage(*_: object, **__: object) -> Iterator[object]:
        raise refusal(503, "Azure ML is out")

    vars(zone.clients.ml.models)["list"] = outage
    begin_pass(zone.clients, now=LATER)
    with pytest.raises(Exception, match="Azure ML is out"):
        remove_old_records(
            zone.clients, {zone.pipeline.name: zone.pipeline}, now=LATER, monotonic=lambda: 0.0
        )
    assert records(zone) == before | {retention.RECORD}


def test_a_process_that_dies_after_any_deletion_goes_on_with_the_rest(
    zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = train(zone, "first"), train(zone, "last")
    container = type(zone.clients.records)
    delete = container.delete_blob
    monkeypatch.setattr(retention, "DELETIONS_AT_ONCE", 1)
    survives = itertools.cycle([True, True, False])

    def die(self: Any, name: str, **condition: Any) -> None:
        delete(self, name, **condition)
        if not next(survives):
            raise ConnectionError("the process dies")

    monkeypatch.setattr(container, "delete_blob", die)
    deaths = 0
    while True:
        try:
            rounds(zone)
        except ConnectionError:
            deaths += 1
            continue
        break
    assert deaths > 2
    assert about(zone, first) == CLAIM


def test_a_manifest_that_a_freeze_adopts_meanwhile_stays_whole(
    zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = train(zone, "first"), train(zone, "last")
    container = type(zone.clients.records)
    delete = container.delete_blob
    adopted: list[bool] = []

    def adopt_first(self: Any, name: str, **condition: Any) -> None:
        if name == f"{first.manifest_path}/manifest.jsonl":
            writer = ManifestWriter(zone.clients.records, first.manifest_path, "w" * 16)
            adopted.append(writer.adopt(at=datetime.now(UTC)))
            adopted.append(writer.adopt(at=LATER))
        delete(self, name, **condition)

    monkeypatch.setattr(container, "delete_blob", adopt_first)
    rounds(zone)
    assert adopted == [True, True]
    assert {f"{first.manifest_path}/{name}" for name in ("manifest.jsonl", "MLTable")} <= records(
        zone
    )


def test_a_new_manifest_is_adopted_without_a_change_and_a_missing_one_is_not(zone: Zone) -> None:
    zone.land("1.png")
    path = zone.freeze().manifest_path
    blob = zone.clients.records.get_blob_client(f"{path}/manifest.jsonl")
    etag = blob.get_blob_properties().etag
    writer = ManifestWriter(zone.clients.records, path, "w" * 16)
    assert writer.adopt(at=datetime.now(UTC))
    assert blob.get_blob_properties().etag == etag
    assert writer.adopt(at=datetime.now(UTC) + RENEWED_AFTER + timedelta(hours=1))
    assert blob.get_blob_properties().etag != etag
    assert not ManifestWriter(zone.clients.records, "manifests/p/none", "w").adopt(at=LATER)


def test_a_pass_begins_once_a_day_and_not_before_the_last_one_is_over(zone: Zone) -> None:
    assert begin_pass(zone.clients, now=LATER)
    assert not begin_pass(zone.clients, now=LATER + 2 * INTERVAL)  # it is under way
    remove_old_records(zone.clients, {}, now=LATER, monotonic=lambda: 0.0)
    assert not begin_pass(zone.clients, now=LATER + INTERVAL / 2)
    assert begin_pass(zone.clients, now=LATER + INTERVAL)


async def test_only_old_instances_that_have_ended_are_purged(zone: Zone) -> None:
    hub = TaskHub()
    for name, status in (("a", "Completed"), ("b", "Failed"), ("c", "Terminated")):
        hub.add(name, "retraining", status, created=LATER - timedelta(days=61))
        hub.add(f"new-{name}", "retraining", status, created=LATER - timedelta(days=59))
    for status in ("Running", "Pending", "Suspended"):
        hub.add(status, "landing", status, created=LATER - timedelta(days=100))
    starter: Any = hub
    assert await purge_instances(zone.clients, starter, now=LATER) == 3
    assert set(hub.documents) == {"new-a", "new-b", "new-c", "Running", "Pending", "Suspended"}
