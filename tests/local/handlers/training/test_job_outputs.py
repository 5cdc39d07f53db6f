from __future__ import annotations

import pytest

from handlers.training import job_outputs
from handlers.training.job_outputs import METRICS_FILE, find_change, read_results
from orchestrations.contracts.training import ReadResults, Results
from orchestrations.errors import InvalidResults
from orchestrations.names import results_folder
from tests.local.handlers.cloud import Cloud
from tests.local.handlers.zone_on_storage import Zone

CONTAINER = "azureml-results"


def leave(cloud: Cloud, run: str, file: str, text: bytes) -> None:
    container = cloud.clients.workspace_blobs.get_container_client(CONTAINER)
    if not container.exists():  # on Azure it comes with the workspace
        container.create_container()
    container.upload_blob(results_folder("digits", run) + file, text)


def request(run: str) -> ReadResults:
    return ReadResults(
        pipeline="digits", run=run, container=CONTAINER, completed=True, metrics=["accuracy"]
    )


def test_what_is_not_there_is_nothing(cloud: Cloud) -> None:
    leave(cloud, "read-0", METRICS_FILE, b"{}")
    results = read_results(cloud.clients, request("read-2"))
    assert results == Results(metrics={}, record="runs/read-2/results.json")


def test_an_empty_file_is_told_as_such(cloud: Cloud) -> None:
    leave(cloud, "read-3", METRICS_FILE, b"")
    with pytest.raises(InvalidResults, match=r"metrics.json of run read-3 is not valid JSON"):
        read_results(cloud.clients, request("read-3"))


def change_of(zone: Zone, version: str) -> str | None:
    return find_change(zone.clients, zone.pipeline.name, version)


def test_only_other_content_is_a_change(zone: Zone) -> None:
    for name in ("7/1.png", "7/2.png", "8/ü &%.png"):
        zone.land(name, b"old")
    version = zone.close_batch().version
    assert change_of(zone, version) is None
    zone.land("7/1.png", b"old")  # another ETag, the same content
    zone.land("7/3.png", b"new")  # not in the dataset
    assert change_of(zone, version) is None
    zone.land("7/2.png", b"new")
    assert change_of(zone, version) == "'7/2.png' was overwritten"
    zone.land("7/2.png", b"old")
    zone.delete("8/ü &%.png")
    assert change_of(zone, version) == "'8/ü &%.png' was deleted"


def test_what_cannot_be_compared_counts_as_unchanged(
    zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone.land("7/1.png", b"old")
    version = zone.close_batch().version
    zone.land("7/1.png", b"new")
    assert change_of(zone, "0" * 16) is None
    for limit in ("CHECKED_BLOBS", "LISTED_PAGES"):
        with monkeypatch.context() as patch:
            patch.setattr(job_outputs, limit, 0)
            assert change_of(zone, version) is None
    assert change_of(zone, version) is not None


def test_of_a_partition_only_its_own_blobs_are_compared(zone: Zone) -> None:
    zone.rules("source", partitions="date=%Y-%m-%d", batch="partition")
    for day in (1, 2):
        zone.land(f"date=2026-11-0{day}/a.png", b"old")
    version = zone.close_batch(partition="2026-11-01").version
    zone.land("date=2026-11-02/a.png", b"new")
    assert change_of(zone, version) is None
    zone.land("date=2026-11-01/a.png", b"new")
    assert change_of(zone, version) == "'date=2026-11-01/a.png' was overwritten"
