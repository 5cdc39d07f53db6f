from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import pytest
from azure.storage.blob import BlobBlock

from handlers.platform.manifests import MANIFEST_FILE, read_manifest_from
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.manifest import MLTABLE
from tests.local.handlers.zone_on_storage import Zone


def paths(zone: Zone, dataset: Dataset) -> list[str]:
    return [line.path for line in read_manifest_from(zone.clients, dataset, "")]


def test_an_empty_zone_has_nothing_new(zone: Zone) -> None:
    empty = zone.freeze()
    assert (empty.blobs, empty.bytes, empty.newest) == (0, 0, None)


def test_a_freeze_tells_how_much_was_listed_and_how_new(zone: Zone) -> None:
    before = datetime.now(UTC) - timedelta(seconds=2)  # the service keeps whole seconds
    zone.land("7/1.png", b"12345")
    zone.land("_SUCCESS", b"")
    first = zone.freeze()
    assert (first.blobs, first.bytes) == (1, 5)
    assert first.newest is not None
    assert before <= first.newest <= datetime.now(UTC)


def test_only_what_the_pipeline_takes_counts(zone: Zone) -> None:
    zone.rules("source", include=["*.png"])
    zone.land("7/1.png")
    zone.land("notes.txt")
    zone.land("%2e%2e/%2e%2e/out.png")  # its name is this very text; decoded, it leads out
    zone.clients.blobs.get_container_client("landing").upload_blob(f"not-{zone.blob('x.png')}", b"")
    assert paths(zone, zone.freeze()) == ["7/1.png"]


def test_a_manifest_has_every_blob_in_order_of_path(zone: Zone) -> None:
    etags = {path: zone.land(path, path.encode()) for path in ("b/2", "a/10", "a/2", "ü")}
    frozen_at = datetime(2026, 11, 21, 9, tzinfo=UTC)
    dataset = zone.freeze(frozen_at)
    lines = list(read_manifest_from(zone.clients, dataset, ""))
    assert [line.path for line in lines] == ["a/10", "a/2", "b/2", "ü"]
    for line in lines:
        content = line.path.encode()
        assert line.size == len(content)
        assert line.md5 == hashlib.md5(content, usedforsecurity=False).hexdigest()
        assert line.etag == etags[line.path]
    assert (dataset.blobs, dataset.bytes) == (4, 4 + 3 + 3 + 2)
    assert dataset.frozen_at == frozen_at
    table = zone.clients.records.download_blob(f"{dataset.manifest_path}/MLTable").readall()
    assert table.decode() == MLTABLE


def test_the_same_content_is_the_same_version_whenever_and_in_whatever_order(zone: Zone) -> None:
    zone.land("1", b"one")
    zone.land("2", b"two")
    first = zone.freeze()
    zone.land("2", b"two")
    zone.land("1", b"one")
    second = zone.freeze()
    assert second.version == first.version
    zone.land("1", b"ONE")
    assert zone.freeze().version != first.version
    zone.land("1", b"one")
    assert zone.freeze().version == first.version


def test_a_manifest_that_is_there_is_left_as_it_is(zone: Zone) -> None:
    zone.land("1", b"one")
    first = zone.freeze()
    kept = {blob.name: blob.etag for blob in zone.clients.records.list_blobs()}
    zone.land("1", b"one")  # so that a manifest written now would have another ETag in it
    assert zone.freeze().manifest_path == first.manifest_path
    assert {blob.name: blob.etag for blob in zone.clients.records.list_blobs()} == kept


def test_a_freeze_that_died_half_way_is_completed(zone: Zone) -> None:
    zone.land("1", b"one")
    dataset = zone.freeze()
    zone.clients.records.delete_blob(f"{dataset.manifest_path}/{MANIFEST_FILE}")
    assert zone.freeze(dataset.frozen_at) == dataset
    assert paths(zone, dataset) == ["1"]


def test_without_an_md5_the_etag_stands_for_the_content(zone: Zone) -> None:
    landing = zone.clients.blobs.get_container_client("landing")
    blob = landing.get_blob_client(zone.blob("large"))

    def write() -> Dataset:
        blob.stage_block("MQ==", b"in blocks")
        blob.commit_block_list([BlobBlock("MQ==")])
        return zone.freeze()

    first = write()
    (line,) = read_manifest_from(zone.clients, first, "")
    assert line.md5 is None
    assert zone.freeze().version == first.version
    assert write().version != first.version  # without an MD5, the content may differ


@pytest.mark.parametrize("mended", [b"good", b"bad"])
def test_a_refused_file_is_left_out_until_it_is_written_again(zone: Zone, mended: bytes) -> None:
    zone.land("1", b"one")
    zone.land("2", b"bad")
    dataset = zone.freeze()
    zone.refuse(dataset, **{"2": "no image", "3": "was never in the manifest"})

    rest = zone.freeze()
    assert (rest.blobs, rest.quarantined) == (1, 1)
    assert paths(zone, rest) == ["1"]
    assert rest.version != dataset.version

    zone.land("2", mended)
    again = zone.freeze()
    assert paths(zone, again) == ["1", "2"]
    assert (again.version == dataset.version) == (mended == b"bad")


def test_folders_are_no_data(zone: Zone) -> None:
    """Stubs that tools write in flat accounts, and those that hierarchical accounts list."""
    landing = zone.clients.blobs.get_container_client("landing")
    landing.upload_blob(zone.blob("7"), b"", metadata={"hdi_isfolder": "true"})
    landing.upload_blob(zone.blob("8"), b"", metadata={"Hdi_isfolder": "True"})
    zone.land("9/", b"")
    zone.land("10_$folder$", b"")
    zone.land("7/empty.txt", b"")
    assert paths(zone, zone.freeze()) == ["7/empty.txt"]


DAYS = [f"date=2026-11-{day:02}/a.png" for day in (18, 19, 20, 21, 22)]
AT = datetime(2026, 11, 22, 8, tzinfo=UTC)


def partitioned(zone: Zone, **dataset: int) -> None:
    zone.rules("source", partitions="date=%Y-%m-%d")
    zone.rules("dataset", **dataset)
    for path in (*DAYS, "readme.txt", "date=soon/a.png"):
        zone.land(path)


@pytest.mark.parametrize(
    ("rules", "partition", "days"),
    [
        ({}, None, DAYS),
        ({"newest_partitions": 2}, None, DAYS[-2:]),
        ({"last_days": 3}, None, DAYS[-3:]),
        ({}, "2026-11-20", DAYS[2:3]),
        ({"newest_partitions": 2}, "2026-11-20", DAYS[1:3]),
        ({"last_days": 10}, "2026-11-20", DAYS[:3]),
    ],
)
def test_a_dataset_is_made_of_the_partitions_that_the_pipeline_names(
    zone: Zone, rules: dict[str, int], partition: str | None, days: list[str]
) -> None:
    partitioned(zone, **rules)
    dataset = zone.freeze(AT, partition=partition)
    assert paths(zone, dataset) == days
    assert dataset.partition == partition


def test_partitions_may_lie_several_folders_deep(zone: Zone) -> None:
    zone.rules("source", partitions="year=%Y/month=%m")
    zone.rules("dataset", newest_partitions=1)
    for month in (1, 9, 10):
        zone.land(f"year=2026/month={month:02}/a.png")
    assert paths(zone, zone.freeze(AT)) == ["year=2026/month=10/a.png"]
