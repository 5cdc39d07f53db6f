"""Activity `forget_blobs`, and what it keeps.

`forgotten/contents.json` has every forgotten content; each freeze reads it. The folder
`forgotten/<request>/` has the request, the contents that were found by name (`contents/`), and the
dataset versions that have them (`versions/`).

A content is MD5 and size. If the service keeps no MD5, the ETag takes its place. An ETag belongs to
one write: such a blob is a new content when it is uploaded again.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import ResourceNotFoundError

from handlers.landing.blob_events import normal_etag
from handlers.landing.copies import copies_folder
from handlers.landing.event_records import erase_from_log, list_logs
from handlers.platform import record_store
from handlers.platform.activity_adapter import activity
from handlers.platform.clients import Clients
from handlers.platform.configuration.configurations import deployed_pipeline
from handlers.platform.manifests import MANIFEST_FILE, read_chunks
from orchestrations.contracts.forgetting import (
    ForgetBlobs,
    ForgetProgress,
    ForgetRequest,
    ForgetStep,
    ForgottenVersion,
)
from orchestrations.contracts.manifest import decode_line, parse_lines, path_of, text_of
from orchestrations.errors import DataChanged, InvalidPipeline

if TYPE_CHECKING:
    from azure.storage.blob import BlobProperties

CONTENTS = "forgotten/contents.json"
# An activity has 110 s; the longest manifest of ten million lines takes about 40 s.
PIECE_SECONDS = 20.0
FEW_TEXTS = 32
OF_A_VERSION = 3
"""The slashes in the name of a version's manifest."""
# Last-Modified has whole seconds, and clocks differ.
CLOCK_SKEW = timedelta(seconds=2)
Content = tuple[str, int]
"""MD5, or the ETag where there is none; size in bytes."""


def content_of(properties: BlobProperties) -> Content:
    """The content of a blob."""
    md5 = properties.content_settings.content_md5
    return bytes(md5).hex() if md5 else normal_etag(properties.etag), properties.size


def content_of_line(line: bytes) -> Content:
    """The content of a line of a manifest."""
    blob = decode_line(line)
    return blob.md5 or blob.etag, blob.size


def read_contents(clients: Clients) -> dict[Content, str]:
    """Every forgotten content → the request that it was forgotten by."""
    document = record_store.read(clients.records, CONTENTS) or []
    return {(digest, size): request for digest, size, request in document}


def check_none_forgotten_since(
    clients: Clients, frozen_at: datetime, *, committed: str | None = None
) -> None:
    """Refuse a manifest whose listing may be older than a request to forget.

    A freeze checks before the commit, and again after it. So it does not matter which of the commit
    and the contents is written first: the freeze sees the contents, or `find-versions` sees the
    manifest.

    Args:
        clients: the app's.
        frozen_at: when the freeze began.
        committed: the folder of the manifest, after the commit. If it has forgotten contents, it is
            added to the versions of their requests.

    Raises:
        DataChanged: contents were forgotten after the freeze began.
    """
    with contextlib.suppress(ResourceNotFoundError):
        kept = clients.records.get_blob_client(CONTENTS).get_blob_properties()
        if kept.last_modified >= frozen_at - CLOCK_SKEW:
            if committed is not None:
                find_forgotten_in(clients, read_contents(clients), committed)
            raise DataChanged("blobs were forgotten after the zone was listed")


def folder_of(request: str) -> str:
    """The folder of a request's records."""
    return f"forgotten/{request}/"


def keep_request(clients: Clients, request: ForgetRequest) -> None:
    """Record a request, unless it is recorded."""
    record_store.create(clients.records, _record(request.id), request.to_dict())


def read_request(clients: Clients, request: str) -> ForgetRequest | None:
    """A request as it was recorded; None if there is none."""
    document = record_store.read(clients.records, _record(request))
    return None if document is None else ForgetRequest.from_dict(document)


def list_requests(
    clients: Clients, *, since: datetime | None = None, ending: str = ""
) -> list[ForgetRequest]:
    """Every request, newest first: of those since a time, whose id has an ending."""
    first = "" if since is None else folder_of(f"forget-{since:%Y%m%dT%H%M%S}")
    folders = [each.name for each in clients.records.walk_blobs(name_starts_with="forgotten/")]
    chosen = (name for name in folders if name >= first and name.endswith(f"{ending}/"))
    found = (read_request(clients, name.split("/")[1]) for name in sorted(chosen, reverse=True))
    return [each for each in found if each is not None]


def find_unfinished(
    clients: Clients, *, since: datetime | None = None, digest: str = ""
) -> list[ForgetRequest]:
    """The requests that are not done, newest first; with a digest, those for the same blobs."""
    found = list_requests(clients, since=since, ending=f"-{digest}" if digest else "")
    return [each for each in found if each.done_at is None]


def read_versions(clients: Clients, request: str) -> list[ForgottenVersion]:
    """The dataset versions with forgotten contents that were found until now."""
    documents = record_store.read_all(clients.records, f"{folder_of(request)}versions/")
    return [ForgottenVersion.from_dict(each) for each in documents]


def find_request_of(clients: Clients, pipeline: str, version: str) -> str | None:
    """The newest request whose contents a dataset version has, if there is one."""
    has = (
        each.id
        for each in list_requests(clients)
        if record_store.read(clients.records, _version_record(each.id, pipeline, version))
    )
    return next(has, None)


def count_contents(clients: Clients, request: str) -> int:
    """How many contents were found under the names of a request."""
    return len(_found_contents(clients, request))


@activity
def forget_blobs(clients: Clients, request: ForgetBlobs) -> ForgetProgress:
    """Do the next piece of a request's work; see `orchestrations.landing.forgetting`."""
    record = read_request(clients, request.request)
    assert record is not None, f"{request.request} was recorded before it was started"
    step, marker = request.progress.step, request.progress.marker
    match step:
        case "find-contents":
            if marker is None:
                _find_in_zones(clients, record)
            names = _manifests(clients, record.blobs)
            return _pieces(names, marker, step, lambda it: _find_by_name(clients, record, it)) or (
                _keep_contents(clients, record)
            )
        case "find-versions":
            names = _manifests(clients)
            contents = dict.fromkeys(_found_contents(clients, record.id), record.id)
            following = ForgetProgress(step="erase-events")
            return (
                _pieces(names, marker, step, lambda it: find_forgotten_in(clients, contents, it))
                or following
            )
        case "erase-events":
            logs = list_logs(clients.records, record.blobs)
            blobs = {blob for names in record.blobs.values() for blob in names}
            return _pieces(
                logs, marker, step, lambda it: erase_from_log(clients.records, it, blobs)
            ) or _end(clients, record)
        case "done":
            return request.progress


def _pieces(
    names: Collection[str], marker: str | None, step: ForgetStep, read: Callable[[str], None]
) -> ForgetProgress | None:
    """Read what comes after the marker until the time is over; None if all was read."""
    end = time.monotonic() + PIECE_SECONDS
    for name in sorted(name for name in names if marker is None or name > marker):
        if time.monotonic() >= end:
            return ForgetProgress(step=step, marker=marker)
        read(name)
        marker = name
    return None


def _manifests(clients: Clients, pipelines: Collection[str] | None = None) -> list[str]:
    """`manifests/<pipeline>/<version>` of all dataset versions, or of those of some pipelines.

    The lines of a version's other manifests, such as that of its new files, are lines of its own.
    """
    prefixes = ["manifests/"] if pipelines is None else [f"manifests/{it}/" for it in pipelines]
    return [
        name.rpartition("/")[0]
        for prefix in prefixes
        for name in clients.records.list_blob_names(name_starts_with=prefix)
        if name.endswith(f"/{MANIFEST_FILE}") and name.count("/") == OF_A_VERSION
    ]


def lines_near(clients: Clients, folder: str, texts: Iterable[str]) -> Iterator[list[bytes]]:
    """The lines of a manifest, some at a time, without chunks that have none of the texts.

    Few chunks have one, and parsing a line takes many times as long as searching it. There are no
    lines if retention has removed the manifest.
    """
    # A quotation mark in a text is encoded as one: only what comes after the last is compared.
    ends = {encode_basestring_ascii(text)[1:-1].rpartition('"')[2].encode() for text in texts}
    with contextlib.suppress(ResourceNotFoundError):
        for chunk in read_chunks(clients, folder):
            # Searching for each text takes 0.06 µs a line, splitting 2.4 µs.
            is_few = len(ends) <= FEW_TEXTS
            if any(end in chunk for end in ends) if is_few else ends & set(chunk.split(b'"')):
                yield chunk.splitlines()


def _find_in_zones(clients: Clients, record: ForgetRequest) -> None:
    """Record the contents that the blobs have in the landing zones now."""
    for name, blobs in record.blobs.items():
        contents: list[Content] = []
        with contextlib.suppress(InvalidPipeline):
            source = deployed_pipeline(clients, name).source
            container = clients.blobs.get_container_client(source.container)
            for blob in blobs:
                with contextlib.suppress(ResourceNotFoundError):
                    properties = container.get_blob_client(blob).get_blob_properties()
                    contents.append(content_of(properties))
        _keep_found(clients, record.id, f"{name}/now", contents)


def _find_by_name(clients: Clients, record: ForgetRequest, folder: str) -> None:
    """Record the contents that the blobs have in a manifest."""
    _, pipeline, version = folder.split("/")
    try:
        prefix = deployed_pipeline(clients, pipeline).source.prefix
    except InvalidPipeline:
        return  # the request was refused if no pipeline watched a blob
    paths = {name.removeprefix(prefix) for name in record.blobs[pipeline]}
    contents = [
        content_of_line(line)
        for lines in lines_near(clients, folder, paths)
        for line in lines
        if path_of(line) in paths
    ]
    _keep_found(clients, record.id, f"{pipeline}/{version}", contents)


def _keep_found(clients: Clients, request: str, name: str, contents: list[Content]) -> None:
    if contents:
        document = sorted(set(contents))
        record_store.replace(clients.records, f"{folder_of(request)}contents/{name}.json", document)


def _found_contents(clients: Clients, request: str) -> set[Content]:
    documents = record_store.read_all(clients.records, f"{folder_of(request)}contents/")
    return {(digest, size) for document in documents for digest, size in document}


def _keep_contents(clients: Clients, record: ForgetRequest) -> ForgetProgress:
    """Forget the contents: no manifest that is written later has one of them."""
    contents = _found_contents(clients, record.id)

    def add(document: Any | None) -> Any:
        known = {(digest, size) for digest, size, _ in document or ()}
        new = [[*content, record.id] for content in sorted(contents - known)]
        return [*(document or ()), *new] if new else None

    record_store.update(clients.records, CONTENTS, add)
    return ForgetProgress(step="find-versions")


def find_forgotten_in(clients: Clients, contents: Mapping[Content, str], folder: str) -> None:
    """Record, for each request, that a dataset version has its contents; delete their copies."""
    _, pipeline, version = folder.split("/")
    counts, deleted = Counter[str](), Counter[str]()
    for lines in lines_near(clients, folder, (digest for digest, _ in contents)):
        for line, it in zip(lines, parse_lines(lines), strict=True):
            digest = it.md5.decode() if it.md5 else text_of(it.etag)
            request = contents.get((digest, it.size))
            if request is None:
                continue
            counts[request] += 1
            copy = decode_line(line).file
            with contextlib.suppress(ResourceNotFoundError):
                if copy is not None:
                    clients.records.delete_blob(copies_folder(pipeline) + copy)
                    deleted[request] += 1
    for request, blobs in counts.items():
        has = ForgottenVersion(
            pipeline=pipeline, version=version, blobs=blobs, copies_deleted=deleted[request]
        )
        # A second try finds no copy any more: the first one has counted them.
        name = _version_record(request, pipeline, version)
        record_store.create(clients.records, name, has.to_dict())


def _end(clients: Clients, record: ForgetRequest) -> ForgetProgress:
    """Erase the blobs' names from the record."""

    def end(document: Any) -> Any | None:
        if document["done_at"] is not None:
            return None
        done_at = datetime.now(UTC).isoformat()
        return document | {"blobs": {name: [] for name in document["blobs"]}, "done_at": done_at}

    record_store.update(clients.records, _record(record.id), end)
    return ForgetProgress(step="done")


def _version_record(request: str, pipeline: str, version: str) -> str:
    return f"{folder_of(request)}versions/{pipeline}/{version}.json"


def _record(request: str) -> str:
    return f"{folder_of(request)}request.json"
