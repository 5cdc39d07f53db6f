"""Freeze a landing zone into a manifest, and leave refused files out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from azure.core.exceptions import ResourceExistsError

from handlers.azure_ml.job_outputs import read_bad_files
from handlers.configuration import record_store
from handlers.configuration.clients import Clients
from handlers.durable.activity_adapter import activity
from handlers.landing_zone.directory_stubs import is_directory_stub
from handlers.landing_zone.partition_folders import prefixes_to_list
from handlers.triggers.blob_events import is_safe_path, normal_etag
from orchestrations.contracts.base import Done
from orchestrations.contracts.datasets import (
    Dataset,
    FreezeManifest,
    QuarantineFiles,
)
from orchestrations.manifest import MLTABLE, ManifestLine, decode_manifest, encode_manifest
from orchestrations.names import dataset_version, zone_fingerprint

MANIFEST_FILE = "manifest.jsonl"


@activity
def freeze_manifest(clients: Clients, request: FreezeManifest) -> Dataset:
    """List the zone once and write what is there as a manifest, named by its content.

    What is there of the same content is left as it is: it was frozen before, and jobs may read it.
    The manifest is written last, so that a folder that has it is whole.
    """
    zone = _list_zone(clients, request)
    version = dataset_version(zone.lines)
    folder = f"manifests/{request.pipeline.name}/{version}"
    for name, content in (
        ("MLTable", MLTABLE.encode()),
        (MANIFEST_FILE, "".join(encode_manifest(zone.lines)).encode()),
    ):
        with contextlib.suppress(ResourceExistsError):
            clients.records.upload_blob(f"{folder}/{name}", content, overwrite=False)
    return Dataset(
        version=version,
        blobs=len(zone.lines),
        bytes=sum(line.size for line in zone.lines),
        partition=request.partition,
        quarantined=zone.quarantined,
        frozen_at=request.frozen_at,
        newest=zone.newest,
        fingerprint=zone.fingerprint,
        manifest_path=folder,
    )


def read_manifest(clients: Clients, dataset: Dataset) -> Iterator[ManifestLine]:
    """The lines of a frozen manifest."""
    text = clients.records.download_blob(f"{dataset.manifest_path}/{MANIFEST_FILE}").readall()
    return decode_manifest(text.decode().splitlines())


def find_line(clients: Clients, dataset: Dataset, path: str) -> ManifestLine | None:
    """The line of one path, if the manifest has it."""
    return next((line for line in read_manifest(clients, dataset) if line.path == path), None)


@activity
def quarantine_files(clients: Clients, request: QuarantineFiles) -> Done:
    """Leave the files that the run's error.json names out of every later manifest.

    By path and ETag: a file that is mended, by writing it again, is taken again.
    """
    reasons = read_bad_files(clients, request.run)
    entries = [
        {"path": line.path, "etag": line.etag, "reason": reasons[line.path], "run": request.run}
        for line in read_manifest(clients, request.dataset)
        if line.path in reasons
    ]
    record_store.replace(
        clients.records, f"quarantine/{request.pipeline}/{request.run}.json", entries
    )
    return Done()


def read_quarantine(clients: Clients, pipeline: str) -> dict[tuple[str, str], str]:
    """(path, ETag) of every file left out, and why."""
    return {
        (entry["path"], entry["etag"]): f"{entry['reason']} (run {entry['run']})"
        for entries in record_store.read_all(clients.records, f"quarantine/{pipeline}/")
        for entry in entries
    }


@dataclass(frozen=True)
class _Zone:
    """One listing: the data blobs in order of path, and when the newest was written."""

    lines: list[ManifestLine]
    newest: datetime | None
    quarantined: int

    @property
    def fingerprint(self) -> str:
        return zone_fingerprint((line.path, line.etag) for line in self.lines)


def _list_zone(clients: Clients, request: FreezeManifest) -> _Zone:
    pipeline, source = request.pipeline, request.pipeline.source
    quarantine = read_quarantine(clients, pipeline.name)
    lines: list[ManifestLine] = []
    newest: datetime | None = None
    quarantined = 0
    container = clients.blobs.get_container_client(source.container)
    prefixes = prefixes_to_list(clients, request)
    for blob in chain.from_iterable(
        container.list_blobs(name_starts_with=prefix, include=["metadata"]) for prefix in prefixes
    ):
        path = blob.name.removeprefix(source.prefix)
        etag = normal_etag(blob.etag)
        if (
            not source.takes(path)
            or not is_safe_path(blob.name)
            or is_directory_stub(path, blob.size, blob.metadata)
        ):
            continue
        if (path, etag) in quarantine:
            quarantined += 1
            continue
        md5 = blob.content_settings.content_md5
        lines.append(
            ManifestLine(
                path=path, size=blob.size, md5=bytes(md5).hex() if md5 else None, etag=etag
            )
        )
        newest = blob.last_modified if newest is None else max(newest, blob.last_modified)
    # The service lists in an order of its own, on which the version must not depend.
    return _Zone(sorted(lines, key=lambda line: line.path), newest, quarantined)
