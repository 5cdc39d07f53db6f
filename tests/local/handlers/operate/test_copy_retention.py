from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from handlers.landing.copies import _adopt  # pyright: ignore[reportPrivateUsage]
from handlers.operate import copy_retention, retention_kinds
from handlers.operate.copy_retention import STEP_SECONDS, delete_unneeded_copies
from handlers.platform import record_store, tags
from handlers.platform.manifests import read_manifest_from
from handlers.platform.run_index import index_run
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.training import RunRecord
from tests.fakes.azure_ml import Workspace
from tests.local.handlers.landing.freezing_process import Process
from tests.local.handlers.landing.test_copies import kept
from tests.local.handlers.zone_on_storage import Zone
from tests.unit.orchestrations.examples import run_status

# A time at which every blob of the tests is old: the service sets the write times.
LATER = datetime.now(UTC) + timedelta(days=100)
KEEP_DAYS = 30


@pytest.fixture
def zone(zone: Zone, monkeypatch: pytest.MonkeyPatch) -> Zone:
    zone.rules("dataset", freeze="copy")
    vars(zone.clients).update(ml=Workspace())
    monkeypatch.setattr(retention_kinds, "NEWEST_BATCHES", 1)
    # 8 KiB of bits are enough for a few copies.
    monkeypatch.setattr(copy_retention, "_DIGITS", 4)
    monkeypatch.setattr(copy_retention, "_BITMAP_BYTES", 16**4 // 8)
    monkeypatch.setattr(copy_retention, "SECTION_DIGITS", 1)
    return zone


def three_versions(zone: Zone) -> list[Dataset]:
    """The datasets of three batches: one file stays, one is overwritten each time."""
    zone.land("stays.png", b"the same")
    versions: list[Dataset] = []
    for number in range(3):
        zone.land("changes.png", f"version {number}".encode())
        versions.append(zone.record(Process(zone).freeze()))
    assert len(kept(zone)) == 4
    return versions


def expire(zone: Zone, now: datetime = LATER, *, steps_per_round: int = 300) -> int:
    """Rounds of the reconciler until the pass is over."""
    deleted = 0
    for _ in range(1000):
        seconds = itertools.count(0.0, STEP_SECONDS / (steps_per_round + 0.5))
        deleted += delete_unneeded_copies(
            zone.clients,
            zone.pipeline,
            keep_days=KEEP_DAYS,
            now=now,
            monotonic=lambda seconds=seconds: next(seconds),
        )
        if state(zone) is None or state(zone)["sections"] == 16:  # None: no pass is due
            return deleted
    raise AssertionError("the pass does not end")


def state(zone: Zone) -> Any:
    return record_store.read(zone.clients.records, f"copy-retention/{zone.pipeline.name}.json")


def names(zone: Zone, dataset: Dataset) -> set[str]:
    return {str(line.file) for line in read_manifest_from(zone.clients, dataset, "")}


@pytest.mark.parametrize("steps_per_round", [300, 5])
def test_copies_that_only_older_versions_need_are_deleted_once(
    zone: Zone, steps_per_round: int
) -> None:
    *_, last = three_versions(zone)
    assert expire(zone, steps_per_round=steps_per_round) == 2
    assert set(kept(zone)) == names(zone, last)
    assert expire(zone, LATER + timedelta(hours=1)) == 0  # the pass of this day is over
    assert state(zone)["began_at"] == LATER.isoformat()
    assert expire(zone, LATER + timedelta(days=1)) == 0
    assert state(zone)["began_at"] != LATER.isoformat()


def test_within_the_retention_nothing_is_deleted(zone: Zone) -> None:
    three_versions(zone)
    assert expire(zone, datetime.now(UTC) + timedelta(days=20)) == 0
    assert len(kept(zone)) == 4


def test_recent_copies_are_kept_even_if_no_record_needs_them(
    zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running freeze that is not recorded yet may have made the copy."""
    three_versions(zone)

    def others(*_: object) -> set[str]:
        return {"of another zone"}

    def has_one(*_: object) -> bool:
        return True

    monkeypatch.setattr(copy_retention, "kept_versions", others)
    monkeypatch.setattr(copy_retention, "has_batch_before", has_one)
    assert expire(zone, datetime.now(UTC) + timedelta(days=13)) == 0
    assert len(kept(zone)) == 4


def run_of(zone: Zone, dataset: Dataset) -> None:
    """A run that is in the index as training."""
    status = run_status(zone.run_of(dataset), "running", dataset.frozen_at)
    index_run(zone.clients.records, RunRecord(status=status, started_at=dataset.frozen_at))


def champion_of(zone: Zone, dataset: Dataset) -> None:
    model = SimpleNamespace(
        name=zone.pipeline.model.name,
        version="1",
        path="azureml://m",
        tags={
            tags.RUN: zone.run_of(dataset),
            tags.DATASET_VERSION: dataset.version,
        },
        properties={},
        stage=None,
    )
    zone.clients.ml.models.store[zone.pipeline.model.name, "1"] = model  # pyright: ignore[reportAttributeAccessIssue] - the fake's


@pytest.mark.parametrize("needs", [run_of, champion_of])
def test_the_versions_of_running_runs_and_of_the_champion_are_kept_whatever_their_age(
    zone: Zone, needs: Callable[[Zone, Dataset], None]
) -> None:
    first, _, last = three_versions(zone)
    needs(zone, first)
    assert expire(zone) == 1
    assert set(kept(zone)) == names(zone, first) | names(zone, last)


def test_a_process_that_dies_in_any_step_deletes_nothing_that_is_kept(
    zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    *_, last = three_versions(zone)
    write = record_store.replace
    survives = itertools.cycle([True, False])

    def die(*given: Any) -> None:
        if not next(survives):
            raise ConnectionError("the process dies")
        write(*given)

    monkeypatch.setattr(record_store, "replace", die)
    deleted = deaths = 0
    while True:
        try:
            deleted += expire(zone)
        except ConnectionError:
            deaths += 1
            continue
        break
    assert deaths > 16
    assert set(kept(zone)) == names(zone, last)


def test_a_copy_that_a_freeze_adopts_meanwhile_is_not_deleted(
    zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _, last = three_versions(zone)
    records = zone.clients.records
    delete = type(records).delete_blob

    def adopt_first(self: Any, name: str, **condition: Any) -> None:
        assert _adopt(records.get_blob_client(name)) == "copied"
        delete(self, name, **condition)

    with monkeypatch.context() as patch:
        patch.setattr(type(records), "delete_blob", adopt_first)
        assert expire(zone) == 0
    assert set(kept(zone)) >= names(zone, first) | names(zone, last)


def test_a_copy_that_was_deleted_is_made_again(zone: Zone) -> None:
    first, *_ = three_versions(zone)
    assert expire(zone) == 2
    zone.land("changes.png", b"version 0")
    again = Process(zone).freeze()
    assert again.version == first.version
    assert names(zone, first) <= set(kept(zone))


def test_nothing_is_deleted_of_a_pipeline_that_has_no_records(
    zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_versions(zone)

    def none(*_: object) -> set[str]:
        return set()

    monkeypatch.setattr(copy_retention, "kept_versions", none)
    assert (
        delete_unneeded_copies(
            zone.clients, zone.pipeline, keep_days=KEEP_DAYS, now=LATER, monotonic=lambda: 0.0
        )
        == 0
    )
    assert len(kept(zone)) == 4
