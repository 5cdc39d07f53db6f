"""Parts of a manifest: ranges of names that are listed independently, and joined in order.

Any cut gives the same manifest; a good one gives ranges of similar size. The boundaries are
folders, found without listing their blobs.

A part is named by its content. An activity that is executed twice, or that outlives its own retry,
therefore cannot change the part that another execution has reported: it writes another, unused
part.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from azure.core.exceptions import ResourceNotFoundError

from handlers.platform.blob_pages import ListedBlob, list_page
from orchestrations.contracts.datasets import CommitProgress
from orchestrations.contracts.manifest import DatasetVersion, encode_line, path_of, split_lines
from orchestrations.errors import PermanentError, TransientError

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

    from handlers.platform.blob_pages import BlobPage, ListedBlob

RANGES = 16
MAXIMUM_PROBES = 40
NAME_HEX_DIGITS = 24
_FOLDER = "freezing"
PIECE_BYTES = 512 * 1024
_SIZE = re.compile(rb', "size": (\d+), "md5": ')


@dataclass(frozen=True)
class NameRange:
    """The blobs below a prefix with `start` <= name < `end`."""

    prefix: str
    start: str | None = None
    end: str | None = None
    marker: str | None = None
    """The continuation token, if the beginning of the range has been listed."""

    def to_dict(self) -> dict[str, Any]:
        """The range as a JSON object."""
        return asdict(self)

    def clip(self, page: BlobPage) -> tuple[Sequence[ListedBlob], bool]:
        """The blobs of a page that are in the range, and whether the range ends in the page.

        Raises:
            PermanentError: the service does not list in order of name, so the range has no defined
                end.
        """
        blobs = page.blobs
        if self.start is not None:
            blobs = [blob for blob in blobs if blob.name >= self.start]
        end = self.end
        if end is None or not blobs or max(blob.name for blob in blobs) < end:
            return blobs, False
        inside = [blob for blob in blobs if blob.name < end]
        if any(blob.name >= end for blob in blobs[: len(inside)]):
            raise PermanentError(
                f"the service lists {blobs[len(inside)].name!r} and {end!r} out of order: the zone "
                "cannot be listed in ranges"
            )
        return inside, True


def cut(
    container: ContainerClient, prefix: str, *, after: str, marker: str, is_hierarchical: bool
) -> Sequence[NameRange]:
    """Ranges that cover all names below a prefix after the last listed name.

    A single range for a hierarchical account, which lists folder by folder, not in order of name,
    and for a service that ignores `start_from`, as local ones may: each range would cost a listing
    of everything before it.
    """
    folders: Sequence[str] = []
    if not is_hierarchical and _starts_from(container, prefix, after):
        folders = _find_folders(container, prefix)
    # Only ASCII, which sorts the same everywhere: services compare UTF-16, Python code points.
    usable = sorted(name for name in set(folders) if name > after and name.isascii())
    step = max(1, -(-len(usable) // RANGES))
    boundaries = usable[step // 2 :: step]
    starts: list[str | None] = [None, *boundaries]
    ends: list[str | None] = [*boundaries, None]
    return [
        NameRange(prefix, start, end, marker if start is None else None)
        for start, end in zip(starts, ends, strict=True)
    ]


def _starts_from(container: ContainerClient, prefix: str, name: str) -> bool:
    page = list_page(container, prefix, start_from=name)
    return all(blob.name >= name for blob in page.blobs[:1])


def _find_folders(container: ContainerClient, prefix: str) -> Sequence[str]:
    """Descend the folders level by level until there are enough boundaries."""
    folders: list[str] = []
    level = [prefix]
    probes = 0
    while level and len(folders) < RANGES and probes < MAXIMUM_PROBES:
        below: list[str] = []
        for folder in level:
            if probes == MAXIMUM_PROBES:
                break
            probes += 1
            below += list_page(container, folder, delimiter="/").prefixes
        folders += below
        level = below
    return folders


class Collected:
    """The data of pages as encoded lines, packed page by page to save memory."""

    def __init__(self) -> None:
        self._packed: list[bytes] = []
        self._lines: list[str] = []
        self._is_in_order = True
        self._latest = ""
        self.blobs = 0
        self.first: str | None = None
        self.last: str | None = None
        self.newest: datetime | None = None

    def add(self, path: str, blob: ListedBlob) -> None:
        """Add a blob; its path is relative to the source's prefix."""
        if self.first is None or path < self.first:
            self.first = path
        if self.last is None or path > self.last:
            self.last = path
        self._is_in_order = self._is_in_order and path > self._latest
        self._latest = path
        self._lines.append(encode_line(path, blob.size, blob.md5, blob.etag))
        self.blobs += 1
        if self.newest is None or blob.last_modified > self.newest:
            self.newest = blob.last_modified

    def pack(self) -> None:
        """Join the lines added since the last call: 5,000 strings take twice their bytes."""
        self._packed.append("".join(self._lines).encode())
        self._lines.clear()

    def to_lines(self) -> bytes:
        """All encoded lines in order of path, independent of the order of the listing."""
        self.pack()
        content = b"".join(self._packed)
        if not self._is_in_order:
            content = b"".join(sorted(content.splitlines(keepends=True), key=path_of))
            self._is_in_order = True
        self._packed = [content]  # frees the packed pages
        return content


@dataclass(frozen=True)
class Part:
    """A stored part."""

    name: str
    first: str
    last: str
    newest: datetime


def parts_folder(pipeline: str, freeze: str) -> str:
    """The folder of a freeze's parts, until its manifest is written."""
    return f"{_FOLDER}/{pipeline}/{freeze}/"


def list_freezes(records: ContainerClient) -> Mapping[tuple[str, str], datetime]:
    """(pipeline, freeze) → when the newest of its parts was written, for all freezes with parts."""
    freezes: dict[tuple[str, str], datetime] = {}
    for blob in records.list_blobs(name_starts_with=f"{_FOLDER}/"):
        _, pipeline, freeze, _ = blob.name.split("/", 3)
        newest = freezes.get((pipeline, freeze), blob.last_modified)
        freezes[pipeline, freeze] = max(newest, blob.last_modified)
    return freezes


def write_part(records: ContainerClient, folder: str, collected: Collected) -> str:
    """Store the collected lines; return the part's name, which is derived from its content."""
    first, last, newest = collected.first, collected.last, collected.newest
    assert first is not None, "an empty part is not written"
    assert last is not None
    assert newest is not None
    content = collected.to_lines()
    name = hashlib.sha256(content).hexdigest()[:NAME_HEX_DIGITS]
    records.upload_blob(
        folder + name,
        content,
        overwrite=True,
        # Encoded, since metadata is ASCII.
        metadata={
            "first": quote(first),
            "last": quote(last),
            "newest": newest.isoformat(),
        },
    )
    return name


def list_parts(records: ContainerClient, folder: str, names: Collection[str]) -> Sequence[Part]:
    """The parts with the given names, in order of their first path.

    Raises:
        TransientError: one is missing.
    """
    wanted = set(names)
    parts = [
        Part(
            name=name,
            first=unquote(blob.metadata["first"]),
            last=unquote(blob.metadata["last"]),
            newest=datetime.fromisoformat(blob.metadata["newest"]),
        )
        for blob in records.list_blobs(name_starts_with=folder, include=["metadata"])
        if (name := blob.name.removeprefix(folder)) in wanted
    ]
    missing = wanted - {part.name for part in parts}
    if missing:
        raise TransientError(f"{folder} lacks the parts {', '.join(sorted(missing))}")
    return sorted(parts, key=lambda part: part.first)


def read_in_order(
    records: ContainerClient, folder: str, parts: Sequence[Part], *, after: str | None = None
) -> Iterator[bytes]:
    """The lines of parts in order of path, without duplicates, in chunks of whole lines.

    Parts that do not overlap, the usual case, are passed on unchanged. Parts that overlap, because
    the service does not list in order of path, are held in memory and merged. With `after`, only
    lines with a greater path are returned.
    """
    # (the part's next path, the part's number, the index of that path in the part's lines)
    waiting: list[tuple[str, int, int]] = []
    opened: dict[int, Sequence[bytes]] = {}
    for number, part in enumerate(parts):
        if after is None or part.first > after:
            waiting.append((part.first, number, 0))
        elif part.last > after:
            lines = _download(records, folder, part).splitlines(keepends=True)
            begin = bisect_right(lines, after, key=path_of)
            opened[number] = lines
            waiting.append((path_of(lines[begin]), number, begin))
    heapq.heapify(waiting)
    while waiting:
        path, number, begin = heapq.heappop(waiting)
        following = waiting[0][0] if waiting else None
        if begin == 0 and (following is None or parts[number].last < following):
            yield _download(records, folder, parts[number])
            continue
        if number not in opened:
            opened[number] = _download(records, folder, parts[number]).splitlines(keepends=True)
        lines = opened[number]
        if path == following:
            end = begin + 1  # another part has the same path
        else:
            end = len(lines)
            if following is not None:
                end = bisect_left(lines, following, begin, key=path_of)
            yield b"".join(lines[begin:end])
        if end == len(lines):
            del opened[number]
        else:
            heapq.heappush(waiting, (path_of(lines[end]), number, end))


def _pieces(chunk: bytes) -> Iterator[bytes]:
    """Split into whole lines of about `PIECE_BYTES`, to bound the memory of their processing."""
    begin = 0
    while begin < len(chunk):
        end = chunk.find(b"\n", begin + PIECE_BYTES) + 1 or len(chunk)
        yield chunk[begin:end]
        begin = end


class Link:
    """The next lines of a manifest, as chunks of whole lines; counts the lines that it yields."""

    def __init__(self, chunks: Iterable[bytes], limit: int | None = None) -> None:
        """Take the first `limit` lines of `chunks`, or all if None."""
        self._chunks = chunks
        self._limit = limit
        self._latest = b""
        self.lines = 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in chain.from_iterable(map(_pieces, self._chunks)):
            self._latest, count = chunk, chunk.count(b"\n")
            if self._limit is not None and self.lines + count > self._limit:
                count = self._limit - self.lines
                self._latest, _ = split_lines(chunk, count)
            self.lines += count
            yield self._latest
            if self.lines == self._limit:
                return

    @property
    def is_last(self) -> bool:
        """Whether the manifest ends with this link, which then has fewer lines than `limit`."""
        return self.lines != self._limit

    @property
    def last_path(self) -> str:
        """The path of the last line that was yielded."""
        return path_of(self._latest[self._latest.rfind(b"\n", 0, -1) + 1 :])


def hash_link(progress: CommitProgress | None, link: Link) -> CommitProgress:
    """Count and hash the lines of the next link; `progress` is that of the previous links."""
    version = DatasetVersion(None if progress is None else progress.link)
    size = 0
    for chunk in link:
        version.update(chunk)
        size += sum(map(int, _SIZE.findall(chunk)))
    return CommitProgress(
        blobs=link.lines + (0 if progress is None else progress.blobs),
        bytes=size + (0 if progress is None else progress.bytes),
        link=version.link,
        is_hashed=link.is_last,
        after=None if link.is_last else link.last_path,
    )


def read_part(records: ContainerClient, folder: str, name: str) -> Sequence[bytes]:
    """The lines of one part, in order of path."""
    return records.download_blob(folder + name).readall().splitlines()


def discard(records: ContainerClient, folder: str) -> None:
    """Delete all parts of a freeze."""
    for name in records.list_blob_names(name_starts_with=folder):
        with contextlib.suppress(ResourceNotFoundError):  # another execution deleted it
            records.delete_blob(name)


def _download(records: ContainerClient, folder: str, part: Part) -> bytes:
    return records.download_blob(folder + part.name).readall()
