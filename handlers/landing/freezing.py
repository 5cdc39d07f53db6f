"""The activities of a freeze: list the zone, in ranges if it is large, and write its manifest.

`orchestrations.landing.freezing` defines their order. An activity holds at most one part of the
listing in memory and takes at most a minute or two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

from handlers.landing import batch_contents
from handlers.landing.batch_contents import (
    UploadedManifest,
    is_data,
    prefixes_to_list,
    read_quarantine,
)
from handlers.landing.copies import copies_folder
from handlers.landing.forgetting import check_none_forgotten_since, read_contents
from handlers.landing.manifest_parts import (
    Collected,
    Link,
    NameRange,
    cut,
    discard,
    hash_link,
    list_parts,
    parts_folder,
    read_in_order,
    write_part,
)
from handlers.platform import record_store
from handlers.platform.activity_adapter import activity
from handlers.platform.blob_pages import list_page
from handlers.platform.clients import Clients
from handlers.platform.configuration.configurations import read_pipeline, resolve_configuration
from handlers.platform.manifests import ManifestWriter, manifest_folder
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.base import Done
from orchestrations.contracts.datasets import (
    CommitManifest,
    CommitProgress,
    CommitStep,
    Configuration,
    Dataset,
    DiscardParts,
    FreezeManifest,
    FreezeStart,
    ListedRange,
    ListRange,
)
from orchestrations.contracts.manifest import VERSION_HEX_DIGITS, DatasetVersion, add_copy_names
from orchestrations.errors import DataChanged, TransientError

if TYPE_CHECKING:
    from handlers.platform.blob_pages import ListedBlob

# One activity freezes a zone up to this size. Zones with small partitions have many pages.
BLOBS_AT_ONCE = 20_000
PAGES_AT_ONCE = 100
# 10 pages have 50,000 blobs: 7 MB of manifest, and 3 s on Azure.
PAGES_PER_PART = 10
PLAN_FILE = "plan.json"


@activity
def freeze_manifest(clients: Clients, request: FreezeManifest) -> FreezeStart:
    """Freeze a small zone; list the beginning of a large one, and cut the rest into ranges.

    The deployed configuration is resolved first; the listing and everything after it uses this one.
    The ranges are stored with the parts, so that a second execution uses the same ones. An
    uploader's manifest that is too long to be read at once is a single range.

    Raises:
        InvalidManifest: the uploader's manifest breaks its rules.
        InvalidPipeline: the pipeline is not deployed.
    """
    configuration = resolve_configuration(clients, request.pipeline)
    pipeline = configuration.pipeline
    if pipeline.source.manifest is not None:
        return _begin_uploaded(clients, request, configuration)
    container = clients.blobs.get_container_client(pipeline.source.container)
    listing = _Listing(clients, pipeline)
    ranges: Sequence[NameRange] = []
    for prefix in prefixes_to_list(clients, pipeline, request.partition, now=request.frozen_at):
        if listing.is_long:
            ranges = [*ranges, NameRange(prefix)]
            continue
        marker: str | None = None
        while True:
            page = list_page(container, prefix, marker=marker)
            listing.take(page.blobs)
            marker = page.next_marker
            if marker is None or listing.is_long:
                break
        if marker is not None:
            after = max((blob.name for blob in page.blobs), default="")
            ranges = cut(
                container,
                prefix,
                after=after,
                marker=marker,
                is_hierarchical=page.is_hierarchical,
            )
    return _begin(clients, request, configuration, listing, [each.to_dict() for each in ranges])


def _begin_uploaded(
    clients: Clients, request: FreezeManifest, configuration: Configuration
) -> FreezeStart:
    pipeline = configuration.pipeline
    listing = _Listing(clients, pipeline)
    manifest = batch_contents.find(clients, pipeline, request.partition)
    ranges: list[dict[str, Any]] = []
    if manifest is not None:
        try:
            blobs, marker = batch_contents.read_piece(clients, pipeline, manifest, None)
        except DataChanged:
            return FreezeStart(configuration=configuration, is_overtaken=True)
        listing.take(blobs)
        if marker is not None:
            ranges.append({"manifest": asdict(manifest), "marker": marker})
    return _begin(clients, request, configuration, listing, ranges)


def _begin(
    clients: Clients,
    request: FreezeManifest,
    configuration: Configuration,
    listing: _Listing,
    ranges: Sequence[dict[str, Any]],
) -> FreezeStart:
    """Freeze the listing if it is complete; otherwise store it as the first part."""
    is_copied = configuration.pipeline.dataset.freeze == "copy"
    if not ranges and not (is_copied and listing.collected.blobs):
        lines = [listing.collected.to_lines()]
        progress = hash_link(None, Link(lines))
        newest = listing.collected.newest
        try:
            step = _write(
                clients,
                request,
                configuration.pipeline,
                progress,
                Link(lines),
                newest,
                listing.quarantined,
            )
        except DataChanged:
            return FreezeStart(configuration=configuration, is_overtaken=True)
        return FreezeStart(configuration=configuration, dataset=step.dataset)
    folder = parts_folder(request.pipeline, request.freeze)
    plan: _Plan = {
        "configuration": configuration.hash,
        "part": listing.write_part(folder),
        "quarantined": listing.quarantined,
        "ranges": [*ranges],
    }
    if not record_store.create(clients.records, folder + PLAN_FILE, plan):
        plan = _read_plan(clients, folder)
        planned = read_pipeline(clients, request.pipeline, plan["configuration"])
        configuration = Configuration(hash=plan["configuration"], pipeline=planned)
    return FreezeStart(
        configuration=configuration,
        ranges=len(plan["ranges"]),
        part=plan["part"],
        quarantined=plan["quarantined"],
    )


@activity
def list_range(clients: Clients, request: ListRange) -> ListedRange:
    """List a range, or its next piece, into a part of the manifest.

    Raises:
        PermanentError: the service does not list in order of name.
        DataChanged, InvalidManifest: see `batch_contents.read_piece`.
    """
    pipeline = read_pipeline(clients, request.pipeline, request.configuration)
    source = pipeline.source
    container = clients.blobs.get_container_client(source.container)
    folder = parts_folder(request.pipeline, request.freeze)
    planned = _read_plan(clients, folder)["ranges"][request.range]
    listing = _Listing(clients, pipeline)
    if source.manifest is not None:
        blobs, marker = batch_contents.read_piece(
            clients,
            pipeline,
            UploadedManifest(**planned["manifest"]),
            request.marker or planned["marker"],
        )
        listing.take(blobs)
        return ListedRange(
            part=listing.write_part(folder), marker=marker, quarantined=listing.quarantined
        )
    within = NameRange(**planned)
    marker = request.marker or within.marker
    for _ in range(PAGES_PER_PART):
        start = within.start if marker is None else None
        page = list_page(container, within.prefix, marker=marker, start_from=start)
        blobs, is_over = within.clip(page)
        listing.take(blobs)
        marker = None if is_over else page.next_marker
        if marker is None:
            break
    return ListedRange(
        part=listing.write_part(folder), marker=marker, quarantined=listing.quarantined
    )


@activity
def commit_manifest(clients: Clients, request: CommitManifest) -> CommitStep:
    """Join the parts, one link of the manifest per call: hash all links, then write all.

    A manifest of one link is hashed and written in one call.

    Raises:
        DataChanged: blobs were forgotten after the freeze began.
        TransientError: a part is missing.
    """
    pipeline = read_pipeline(clients, request.pipeline, request.configuration)
    folder = parts_folder(request.pipeline, request.freeze)
    parts = list_parts(clients.records, folder, request.parts)

    def link_after(path: str | None) -> Link:
        lines = read_in_order(clients.records, folder, parts, after=path)
        return Link(_named(pipeline, lines), DatasetVersion.LINES_PER_LINK)

    progress = request.progress
    if progress is None or not progress.is_hashed:
        is_first = progress is None
        progress = hash_link(progress, link_after(None if progress is None else progress.after))
        if not (is_first and progress.is_hashed):
            return CommitStep(progress=progress)
    newest = max((part.newest for part in parts), default=None)
    link = link_after(progress.after)
    return _write(clients, request, pipeline, progress, link, newest, request.quarantined)


@activity
def discard_parts(clients: Clients, request: DiscardParts) -> Done:
    """Delete the parts of a freeze whose manifest is written and whose outcome is recorded."""
    discard(clients.records, parts_folder(request.pipeline, request.freeze))
    return Done()


def _write(
    clients: Clients,
    request: FreezeManifest | CommitManifest,
    pipeline: Pipeline,
    progress: CommitProgress,
    link: Link,
    newest: datetime | None,
    quarantined: int,
) -> CommitStep:
    """Write the next hashed link; after the last one, commit the manifest.

    Raises:
        DataChanged: blobs were forgotten after the freeze began.
    """
    version = progress.link[:VERSION_HEX_DIGITS]
    folder = manifest_folder(pipeline.name, version)
    writer = ManifestWriter(clients.records, folder, request.freeze)
    if not writer.adopt(at=request.frozen_at):
        blocks = writer.stage(link, blocks=progress.blocks)
        if not link.is_last:
            update = {"blocks": blocks, "after": link.last_path}
            return CommitStep(progress=progress.model_copy(update=update))
        check_none_forgotten_since(clients, request.frozen_at)
        writer.commit(blocks)
    check_none_forgotten_since(clients, request.frozen_at, committed=folder)
    is_copied = pipeline.dataset.freeze == "copy"
    return CommitStep(
        dataset=Dataset(
            version=version,
            blobs=progress.blobs,
            bytes=progress.bytes,
            partition=request.partition,
            quarantined=quarantined,
            frozen_at=request.frozen_at,
            newest=newest,
            manifest_path=folder,
            copies=copies_folder(pipeline.name) if is_copied else None,
        )
    )


def _named(pipeline: Pipeline, lines: Iterable[bytes]) -> Iterable[bytes]:
    """The lines of the manifest: with the names of copies, if blobs are copied."""
    return map(add_copy_names, lines) if pipeline.dataset.freeze == "copy" else lines


class _Plan(TypedDict):
    configuration: str
    """Hash of the configuration by which the ranges were cut."""
    part: str | None
    """The part with the entries before the ranges."""
    quarantined: int
    ranges: list[dict[str, Any]]


def _read_plan(clients: Clients, folder: str) -> _Plan:
    plan = record_store.read(clients.records, folder + PLAN_FILE)
    if plan is None:
        raise TransientError(f"{folder}{PLAN_FILE} is missing: the freeze has ended already")
    return plan


class _Listing:
    """The part of a zone that one activity listed."""

    def __init__(self, clients: Clients, pipeline: Pipeline) -> None:
        self._records = clients.records
        self._source = pipeline.source
        self._left_out = read_quarantine(clients, pipeline.name)
        self._forgotten = read_contents(clients)
        self._pages = 0
        self._blobs = 0
        self.collected = Collected()
        self.quarantined = 0

    @property
    def is_long(self) -> bool:
        """Whether the listing has reached the size that one activity freezes."""
        return self._blobs >= BLOBS_AT_ONCE or self._pages >= PAGES_AT_ONCE

    def take(self, blobs: Sequence[ListedBlob]) -> None:
        """Collect the blobs of a page that are data."""
        self._pages += 1
        self._blobs += len(blobs)
        source = self._source
        for blob in blobs:
            path = blob.name.removeprefix(source.prefix)
            if not is_data(blob, source, path):
                continue
            is_forgotten = (blob.md5 or blob.etag, blob.size) in self._forgotten
            if is_forgotten or (path, blob.etag or blob.md5) in self._left_out:
                self.quarantined += 1
            else:
                self.collected.add(path, blob)
        self.collected.pack()

    def write_part(self, folder: str) -> str | None:
        """Store the listing as a part of the manifest; return its name, or None if empty."""
        return write_part(self._records, folder, self.collected) if self.collected.blobs else None
