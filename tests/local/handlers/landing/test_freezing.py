"""Large zones are frozen in ranges: any cut, crash or second execution gives the same manifest.

The zone is listed from a server that answers a few blobs a page; the records are at Azurite.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.storage.blob import BlobServiceClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.list_blobs_server import ListBlobsServer, ListedZone
from handlers.landing import freezing, manifest_parts
from handlers.landing.manifest_parts import (
    Collected,
    list_parts,
    parts_folder,
    read_in_order,
    write_part,
)
from handlers.platform.blob_pages import ListedBlob
from handlers.platform.clients import Clients
from handlers.platform.manifests import (
    MANIFEST_FILE,
    ManifestWriter,
    find_line,
    read_manifest_from,
)
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.datasets import Dataset, FreezeManifest
from orchestrations.contracts.manifest import DatasetVersion, decode_line, encode_line
from orchestrations.errors import TransientError
from tests.local.handlers.landing.freezing_process import Process
from tests.local.handlers.zone_on_storage import Zone
from tests.spying import spy
from tests.unit.orchestrations.examples import with_rules
from trainers.data import manifest as trainers_manifest

AT = datetime(2026, 11, 22, 9, tzinfo=UTC)
FREEZES = itertools.count()
# Paths below the zone's prefix: folders, files beside them, characters before and after "/".
PATHS = st.lists(
    st.lists(
        st.text("ab-!&%+= \U0001f600\uff5eé", min_size=1, max_size=2), min_size=1, max_size=3
    ).map("/".join),
    unique=True,
    max_size=40,
)
SLOW = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A zone of more than four pages of two blobs is a large one."""
    monkeypatch.setattr(freezing, "BLOBS_AT_ONCE", 8)


@contextmanager
def listed_from(
    zone: Zone, paths: Sequence[str], page_blobs: int = 2, *, knows_start_from: bool = True
) -> Generator[Clients]:
    """Clients whose zone lists `paths`, with `page_blobs` per page."""
    names = sorted(map(zone.blob, paths))
    listed_zone = ListedZone(
        len(names), names.__getitem__, page_blobs, knows_start_from=knows_start_from
    )
    with ListBlobsServer(listed_zone) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        clients = Clients(zone.clients.settings)
        credential = AzureNamedKeyCredential("local", "bG9jYWw=")
        try:
            with BlobServiceClient(server.url, credential) as listing:
                vars(clients).update(blobs=listing, records=zone.clients.records)
                yield clients
        finally:
            server.shutdown()
            thread.join()


def pipeline_of(zone: Zone) -> Pipeline:
    return with_rules(zone.pipeline, source={"marker": None})


def freeze(clients: Clients, pipeline: Pipeline, *, twice: bool = False) -> Dataset:
    return Process(Zone(clients, pipeline), twice=twice).freeze()


@SLOW
@given(
    paths=PATHS,
    cuts=st.none() | st.lists(st.text("ab/-&%+= ", max_size=4), max_size=4),
    ranges=st.integers(1, 4),
    twice=st.booleans(),
)
def test_any_cut_and_the_one_that_is_found_give_the_same_version_and_the_same_lines(
    zone: Zone, paths: list[str], cuts: list[str] | None, ranges: int, *, twice: bool
) -> None:
    pipeline = pipeline_of(zone)
    with listed_from(zone, paths, page_blobs=5000) as clients:
        whole = freeze(clients, pipeline)
        lines = [(line.path, line.size) for line in read_manifest_from(clients, whole, "")]
        assert [path for path, _ in lines] == sorted(paths)
        assert whole.blobs == len(paths)
        assert whole.bytes == sum(size for _, size in lines)

    def found_folders(*_: object) -> list[str]:
        return [zone.blob(cut) for cut in cuts or []]

    with pytest.MonkeyPatch.context() as patch, listed_from(zone, paths) as clients:
        patch.setattr(freezing, "PAGES_PER_PART", 2)
        patch.setattr(manifest_parts, "RANGES", ranges)
        if cuts is not None:
            patch.setattr(manifest_parts, "_find_folders", found_folders)
        clients.records.delete_blob(f"{whole.manifest_path}/{MANIFEST_FILE}")
        cut = freeze(clients, pipeline, twice=twice)
        assert cut == whole
        assert [(line.path, line.size) for line in read_manifest_from(clients, cut, "")] == lines


@SLOW
@given(paths=PATHS, lines=st.integers(1, 12), twice=st.booleans())
def test_a_manifest_of_many_links_is_made_a_link_at_a_time(
    zone: Zone, paths: list[str], lines: int, *, twice: bool
) -> None:
    pipeline = pipeline_of(zone)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DatasetVersion, "LINES_PER_LINK", lines)
        patch.setattr(manifest_parts, "PIECE_BYTES", 150)
        patch.setattr(trainers_manifest, "LINES_PER_LINK", lines)
        with listed_from(zone, paths, page_blobs=5000) as clients:
            whole = freeze(clients, pipeline)
            clients.records.delete_blob(f"{whole.manifest_path}/{MANIFEST_FILE}")
        with listed_from(zone, paths) as clients:
            patch.setattr(freezing, "BLOBS_AT_ONCE", 1)
            assert freeze(clients, pipeline, twice=twice) == whole
            manifest = clients.records.download_blob(f"{whole.manifest_path}/{MANIFEST_FILE}")
            entries = [*trainers_manifest.parse(manifest.readall())]
        assert trainers_manifest.dataset_version(entries) == whole.version
    assert [entry.path for entry in entries] == sorted(paths)


def test_two_writers_of_one_version_leave_one_manifest(zone: Zone) -> None:
    records, folder = zone.clients.records, "manifests/two/0123456789abcdef"
    ours, theirs = (ManifestWriter(records, folder, each * 16) for each in "ab")
    staged = ours.stage([b"ours\n"]), theirs.stage([b"theirs\n"])
    assert not ours.is_written
    theirs.commit(staged[1])
    ours.commit(staged[0])
    assert ours.is_written
    assert records.download_blob(f"{folder}/{MANIFEST_FILE}").readall() == b"theirs\n"


def test_a_zone_is_cut_at_its_folders(zone: Zone) -> None:
    paths = [f"train/n{kind:02}/{number}.jpg" for kind in range(64) for number in range(2)]
    with listed_from(zone, paths, page_blobs=100) as clients:
        container = clients.blobs.get_container_client("landing")
        prefix = zone.pipeline.source.prefix
        cut = manifest_parts.cut(
            container, prefix, after=zone.blob(paths[7]), marker="8", is_hierarchical=False
        )
        assert len(cut) > manifest_parts.RANGES / 2
        assert [each.start for each in cut[1:]] == [each.end for each in cut[:-1]]
        assert (cut[0].start, cut[0].marker, cut[-1].end) == (None, "8", None)
        (one,) = manifest_parts.cut(
            container, prefix, after=zone.blob(paths[7]), marker="8", is_hierarchical=True
        )
        assert (one.start, one.end) == (None, None)


def test_where_the_service_lists_from_the_beginning_nothing_is_listed_twice(zone: Zone) -> None:
    paths = [f"{kind}/{number}" for kind in range(10) for number in range(10)]
    with (
        spy(freezing, "list_page") as listed,
        spy(manifest_parts, "list_page") as tried,
        listed_from(zone, paths, page_blobs=10, knows_start_from=False) as clients,
    ):
        assert freeze(clients, pipeline_of(zone)).blobs == len(paths)
    assert (listed.call_count, tried.call_count) == (len(paths) / 10, 1)


def listed(name: str) -> ListedBlob:
    return ListedBlob(name, len(name), f"0x{name}", None, AT, is_directory=False)


@SLOW
@given(st.lists(st.sets(st.text("ab/", min_size=1, max_size=3), min_size=1), max_size=5))
def test_parts_that_overlap_are_merged_and_give_each_path_once(
    zone: Zone, parts: list[set[str]]
) -> None:
    folder = parts_folder(zone.pipeline.name, f"merge-{next(FREEZES)}")
    names: list[str] = []
    for paths in parts:
        collected = Collected()
        for path in paths:
            collected.add(path, listed(path))
        names.append(write_part(zone.clients.records, folder, collected))
    kept = list_parts(zone.clients.records, folder, names)
    text = b"".join(read_in_order(zone.clients.records, folder, kept))
    merged = [line.path for line in map(decode_line, text.splitlines())]
    assert merged == sorted(set[str]().union(*parts))


def test_a_part_that_is_missing_is_no_manifest(zone: Zone) -> None:
    with pytest.raises(TransientError, match="lacks the parts gone"):
        list_parts(zone.clients.records, "freezing/none/", ["gone"])


def test_one_path_is_found_in_a_large_manifest_without_reading_it(zone: Zone) -> None:
    paths = [f"{number:05}/{'x' * (number % 300)}" for number in range(0, 4000, 2)]
    lines = "".join(encode_line(path, 1, None, "0x1") for path in paths).encode()
    version = DatasetVersion()
    version.update(lines)
    folder = f"manifests/found/{version}"
    writer = ManifestWriter(zone.clients.records, folder, "f" * 16)
    writer.commit(writer.stage([lines]))
    dataset = Dataset(
        version=str(version),
        blobs=len(paths),
        bytes=0,
        frozen_at=AT,
        manifest_path=folder,
    )
    for path in (*paths[:3], *paths[500:1500:99], *paths[-3:]):
        line = find_line(zone.clients, dataset, path)
        assert line is not None
        assert line.path == path
    for path in ("", "00001", "01999/x", "zzz"):
        assert find_line(zone.clients, dataset, path) is None


def test_the_plan_of_the_first_execution_counts(zone: Zone) -> None:
    pipeline = pipeline_of(zone)
    zone.pipeline = pipeline
    request = FreezeManifest(pipeline=zone.deploy(), freeze="planned", frozen_at=AT)
    with listed_from(zone, [f"{number:02}" for number in range(20)]) as clients:
        first = freezing.freeze_manifest(clients, request)
    with listed_from(zone, [f"{number:03}" for number in range(50)]) as clients:
        assert freezing.freeze_manifest(clients, request) == first
    plan = zone.clients.records.download_blob(
        f"{parts_folder(pipeline.name, 'planned')}{freezing.PLAN_FILE}"
    )
    assert len(json.loads(plan.readall())["ranges"]) == first.ranges
