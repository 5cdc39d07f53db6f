"""Blobs are copied by the storage part; the freeze is the real orchestrator and activities."""

from __future__ import annotations

import contextlib
import hashlib
import json
from datetime import datetime
from pathlib import Path

import pytest
from azure.core.exceptions import ResourceExistsError
from azure.storage.blob import BlobBlock, BlobClient, ContentSettings

from handlers.landing import copies
from handlers.landing.copies import copies_folder
from handlers.platform.clients import Clients
from handlers.platform.manifests import MANIFEST_FILE, read_manifest_from
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.manifest import ManifestLine
from orchestrations.errors import TransientError
from tests.local.handlers.landing.freezing_process import Process
from tests.local.handlers.zone_on_storage import Zone
from tests.spying import spy
from trainers.data import samples
from trainers.data.manifest import read_manifest as read_as_trainer


@pytest.fixture
def zone(zone: Zone) -> Zone:
    zone.rules("dataset", freeze="copy")
    return zone


def kept(zone: Zone) -> dict[str, datetime]:
    """The existing copies and their creation times, which an adoption does not change."""
    folder = copies_folder(zone.pipeline.name)
    found = zone.clients.records.list_blobs(name_starts_with=folder)
    return {blob.name.removeprefix(folder): blob.creation_time for blob in found}


def mounted(zone: Zone, dataset: Dataset, folder: Path) -> Path:
    """The files in a job's input `data`."""
    assert dataset.copies is not None
    for blob in zone.clients.records.list_blobs(name_starts_with=dataset.copies):
        place = folder / blob.name.removeprefix(dataset.copies)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(zone.clients.records.download_blob(blob.name).readall())
    return folder


def trained_on(zone: Zone, dataset: Dataset, folder: Path) -> dict[str, bytes]:
    """The samples that the trainer reads and verifies, by path."""
    manifest = zone.clients.records.download_blob(f"{dataset.manifest_path}/{MANIFEST_FILE}")
    folder.mkdir()
    (folder / MANIFEST_FILE).write_bytes(manifest.readall())
    frozen = read_as_trainer(folder)
    assert frozen.version == dataset.version
    data = mounted(zone, dataset, folder / "data")
    return {entry.path: samples.read_verified(data, entry)[0] for entry in frozen.entries}


def test_a_file_that_is_overwritten_after_the_freeze_is_trained_on_as_it_was(
    zone: Zone, tmp_path: Path
) -> None:
    zone.land("7/1.png", b"old")
    zone.land("8/ü &%.png", b"other")
    dataset = Process(zone).freeze()
    zone.land("7/1.png", b"new")
    zone.delete("8/ü &%.png")
    assert trained_on(zone, dataset, tmp_path / "one") == {
        "7/1.png": b"old",
        "8/ü &%.png": b"other",
    }


def test_another_version_copies_only_what_is_new(zone: Zone, tmp_path: Path) -> None:
    for number in range(6):
        zone.land(f"7/{number}.png", f"{number}".encode())
    first = zone.record(Process(zone).freeze())
    before = kept(zone)
    zone.land("7/2.png", b"changed")
    zone.land("9/new.png", b"new")
    zone.land("9/same.png", b"5")
    zone.delete("7/0.png")
    with spy(BlobClient, "start_copy_from_url") as copied:
        second = Process(zone).freeze()
    assert second.version != first.version
    asked = sorted(call.args[1].rpartition("/")[2] for call in copied.call_args_list)
    assert asked == ["2.png", "new.png", "same.png"]
    assert before.items() <= kept(zone).items()
    assert len(kept(zone)) == len(before) + 2  # equal content has one copy
    assert trained_on(zone, second, tmp_path / "two")["9/same.png"] == b"5"
    assert trained_on(zone, first, tmp_path / "one")["7/2.png"] == b"2"


def test_a_crash_between_two_pieces_loses_no_copy(
    zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "BLOBS_PER_PIECE", 2)
    for number in range(5):
        zone.land(f"7/{number}.png", f"{number}".encode())
    process = Process(zone)

    def die() -> None:
        process.before["copy_blobs"] = die
        raise RuntimeError("the process dies")

    process.before["copy_blobs"] = lambda: process.before.update(copy_blobs=die)
    with pytest.raises(RuntimeError, match="dies"):
        process.freeze()
    before = kept(zone)
    assert len(before) == 2
    dataset = Process(zone).freeze()
    assert dataset.blobs == 5
    assert before.items() <= kept(zone).items()
    assert len(kept(zone)) == 5


def test_what_is_written_while_it_is_copied_is_no_batch(zone: Zone) -> None:
    zone.land("7/1.png", b"one")
    zone.land("7/2.png", b"two")
    for change in (lambda: zone.land("7/1.png", b"ONE"), lambda: zone.delete("7/2.png")):
        process = Process(zone)
        process.before["copy_blobs"] = change
        assert process.try_to_freeze() is None
    dataset = Process(zone).freeze()
    digest = hashlib.md5(b"ONE", usedforsecurity=False).hexdigest()
    assert [(line.path, line.file) for line in read_manifest_from(zone.clients, dataset, "")] == [
        ("7/1.png", f"{digest[:2]}/{digest}-3.png")
    ]


def uploaded_manifest(zone: Zone, **files: bytes) -> None:
    zone.rules("source", manifest="files.jsonl", marker=None)
    lines = [
        {"path": path, "size": len(content), "md5": hashlib.md5(content).hexdigest()}  # noqa: S324 - the format's
        for path, content in sorted(files.items())
    ]
    zone.land("files.jsonl", "".join(json.dumps(each) + "\n" for each in lines).encode())


def test_a_file_that_an_uploaders_manifest_names_and_that_is_not_there_is_missing(
    zone: Zone,
) -> None:
    zone.land("there.png", b"one")
    uploaded_manifest(zone, **{f"gone-{number}.png": b"two" for number in range(5)})
    with pytest.raises(RuntimeError) as caught:
        Process(zone).try_to_freeze()
    assert f"landing/{zone.blob('files.jsonl')} names 'gone-0.png'" in str(caught.value)
    assert "and 2 more, which landing/" in str(caught.value)
    assert "upload what is missing" in str(caught.value)
    uploaded_manifest(zone, **{"there.png": b"one"})
    assert Process(zone).freeze().blobs == 1


@pytest.mark.parametrize("missing", ["landing", "records"])
def test_a_container_that_is_missing_is_no_blob_that_was_overwritten(
    zone: Zone, missing: str
) -> None:
    for container in ("elsewhere-landing", "elsewhere-records"):
        with contextlib.suppress(ResourceExistsError):
            zone.clients.blobs.create_container(container)
    zone.rules("source", container="elsewhere-landing")
    original = zone.clients.blobs.get_container_client("elsewhere-landing")
    original.upload_blob(zone.blob("7/1.png"), b"one", overwrite=True)
    (line,) = (
        ManifestLine(path="7/1.png", size=3, md5=None, etag=str(blob.etag).strip('"'))
        for blob in original.list_blobs(name_starts_with=zone.blob(""))
    )
    clients = Clients(zone.clients.settings)
    records = zone.clients.blobs.get_container_client("elsewhere-records")
    vars(clients).update(blobs=zone.clients.blobs, records=records)
    zone.clients.blobs.delete_container(f"elsewhere-{missing}")
    with pytest.raises(TransientError, match=f"container 'elsewhere-{missing}' of account"):
        copies._copy(clients, zone.pipeline, line)  # pyright: ignore[reportPrivateUsage]


def test_a_blob_without_md5_is_copied_whenever_it_is_written(zone: Zone) -> None:
    def land() -> None:
        blob = zone.clients.blobs.get_blob_client("landing", zone.blob("7/blocks.png"))
        blob.stage_block("00", b"the same")
        blob.commit_block_list([BlobBlock("00")], content_settings=ContentSettings())

    versions: set[str] = set()
    for _ in range(2):
        land()
        versions.add(Process(zone).freeze().version)
    assert len(versions) == 2
    assert len(kept(zone)) == 2


def test_an_empty_zone_has_nothing_to_copy(zone: Zone) -> None:
    dataset = Process(zone).freeze()
    assert dataset.blobs == 0


def test_copies_and_references_are_two_versions(zone: Zone) -> None:
    zone.land("7/1.png", b"one")
    copied = Process(zone).freeze()
    zone.rules("dataset", freeze="reference")
    referenced = Process(zone).freeze()
    assert (referenced.copies, referenced.version == copied.version) == (None, False)
