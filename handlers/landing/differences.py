"""The difference between two frozen manifests, counted as a stream in bounded memory.

Both manifests are sorted by path. They are read window by window: lines that both have are found
as sets, and only the others are compared. Contents are counted in buckets by hash, which go to a
temporary file when they are long: about 25 bytes for each blob.
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from tempfile import SpooledTemporaryFile
from typing import IO, Self

from handlers.platform import record_store
from handlers.platform.activity_adapter import activity
from handlers.platform.clients import Clients
from handlers.platform.manifests import ManifestWriter, manifest_folder, read_chunks
from orchestrations.configuration.pipeline import Source
from orchestrations.contracts.base import Done
from orchestrations.contracts.checked import ListNewFiles
from orchestrations.contracts.difference import Amount, Difference, Group, Groups, NamedBlob
from orchestrations.contracts.manifest import EncodedLine, parse_lines, path_of, text_of
from orchestrations.names import new_files_folder

GROUPS_LISTED = 1000
GROUPS_COUNTED = 100_000
EXAMPLES = 5
_KEPT = "difference-from-"
_BUCKETS = 64
_BUCKET_BYTES_IN_MEMORY = 256 * 1024
_RECORD = struct.Struct(">16sQB")
# What happened to a path with a content.
_KINDS = ("kept", "removed", "added", "changed_from", "changed")


def difference_of(
    source: Source | None,
    base: tuple[str, Iterable[bytes]] | None,
    version: str,
    lines: Iterable[bytes],
) -> Difference:
    """Compare two manifests.

    Args:
        source: of the pipeline; it names the partitions. None: there are none.
        base: the earlier version and its encoded lines, in chunks of whole lines in order of path.
        version: the later version.
        lines: its encoded lines, in the same form.
    """
    with _Count(source) as count:
        for old, new in _windows(() if base is None else base[1], lines):
            count.take(old, new)
        return count.result(version, None if base is None else base[0])


def compare_versions(
    clients: Clients, pipeline: str, source: Source | None, base: str | None, version: str
) -> Difference:
    """The difference between two dataset versions; it is kept beside the later one's manifest.

    Raises:
        azure.core.exceptions.ResourceNotFoundError: there is no manifest of one of them.
    """
    folder = manifest_folder(pipeline, version)
    name = f"{folder}/{_KEPT}{base or 'nothing'}.json"
    document = record_store.read(clients.records, name)
    if document is not None:
        return Difference.from_dict(document)
    before = None
    if base is not None:
        before = base, read_chunks(clients, manifest_folder(pipeline, base))
    lines = read_chunks(clients, folder)
    difference = difference_of(source, before, version, lines)
    record_store.create(clients.records, name, difference.to_dict())
    return difference


@activity
def list_new_files(clients: Clients, request: ListNewFiles) -> Done:
    """Write the manifest of the files that are new, or have other content, since the base."""
    folder = manifest_folder(request.pipeline, request.version)
    writer = ManifestWriter(
        records=clients.records,
        folder=new_files_folder(folder, request.base),
        writer=hashlib.sha256(request.base.encode()).hexdigest()[:16],
    )
    if not writer.is_written:
        before = read_chunks(clients, manifest_folder(request.pipeline, request.base))
        windows = _windows(before, read_chunks(clients, folder))
        writer.commit(writer.stage(_new_lines(old, new) for old, new in windows))
    return Done()


def _new_lines(old: Sequence[bytes], new: Sequence[bytes]) -> bytes:
    known_lines = set(old)
    fresh = [line for line in new if line not in known_lines]
    before = {it.path: it for it in parse_lines(old)} if fresh else {}
    return b"".join(
        line + b"\n"
        for line, it in zip(fresh, parse_lines(fresh), strict=True)
        if (known := before.get(it.path)) is None or not it.has_content_of(known)
    )


def first_difference(clients: Clients, pipeline: str, version: str) -> Difference | None:
    """The difference that was kept first: when the batch landed. None if none is kept."""
    prefix = f"{manifest_folder(pipeline, version)}/{_KEPT}"
    kept = sorted(
        clients.records.list_blobs(name_starts_with=prefix), key=lambda it: it.last_modified
    )
    document = record_store.read(clients.records, kept[0].name) if kept else None
    return None if document is None else Difference.from_dict(document)


def _windows(
    before: Iterable[bytes], after: Iterable[bytes]
) -> Iterator[tuple[Sequence[bytes], Sequence[bytes]]]:
    """The lines of both manifests, in pairs that cover the same paths."""
    chunks = [filter(None, before), filter(None, after)]
    waiting: list[list[bytes]] = [[], []]
    while True:
        waiting = [
            lines or next(more, b"").splitlines()
            for lines, more in zip(waiting, chunks, strict=True)
        ]
        ends = [path_of(lines[-1]) for lines in waiting if lines]
        if not ends:
            return
        cuts = [bisect_right(lines, min(ends), key=path_of) for lines in waiting]
        old, new = (lines[:cut] for lines, cut in zip(waiting, cuts, strict=True))
        yield old, new
        waiting = [lines[cut:] for lines, cut in zip(waiting, cuts, strict=True)]


class _Count:
    """The sums over all windows."""

    def __init__(self, source: Source | None) -> None:
        self._source = source
        self._blobs = Counter[str]()
        self._bytes = Counter[str]()
        self._without_md5 = 0
        self._smallest: NamedBlob | None = None
        self._largest: NamedBlob | None = None
        self._sizes = Counter[int]()
        self._examples: dict[str, list[str]] = defaultdict(list)
        self._folders = _Grouping(lambda folder: folder.partition("/")[0])
        self._labels = _Grouping(lambda folder: folder[:-1].rpartition("/")[2])
        self._partitions = _Grouping(self._partition_of)

    def __enter__(self) -> Self:
        self._files = ExitStack()
        self._buckets: Sequence[IO[bytes]] = [
            self._files.enter_context(SpooledTemporaryFile(_BUCKET_BYTES_IN_MEMORY))  # noqa: SIM115 - the stack closes it
            for _ in range(_BUCKETS)
        ]
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def _partition_of(self, folder: str) -> str | None:
        partition = None if self._source is None else self._source.partition_of(folder)
        return None if partition is None else partition.key

    def take(self, old: Sequence[bytes], new: Sequence[bytes]) -> None:
        """Add a window."""
        common = set(old).intersection(new)
        before = {it.path: it for it in parse_lines([line for line in old if line not in common])}
        kinds: dict[str, list[EncodedLine]] = {kind: [] for kind in _KINDS}
        parsed = parse_lines(new)
        for line, after in zip(new, parsed, strict=True):
            if line in common:
                kinds["kept"].append(after)
                continue
            earlier = before.pop(after.path, None)
            if earlier is None:
                kinds["added"].append(after)
            elif after.has_content_of(earlier):
                kinds["kept"].append(after)
            else:
                kinds["changed"].append(after)
                kinds["changed_from"].append(earlier)
        kinds["removed"].extend(before.values())
        for kind, lines in kinds.items():
            self._add(kind, lines)
        self._see(parsed)

    def _see(self, lines: Sequence[EncodedLine]) -> None:
        """Count lines of the later version: their sizes, and how many lack an MD5."""
        if not lines:
            return
        sizes = [it.size for it in lines]
        self._without_md5 += sum(not it.md5 for it in lines)
        self._sizes.update(map(int.bit_length, sizes))
        if self._smallest is None or min(sizes) < self._smallest.bytes:
            self._smallest = _named(lines[sizes.index(min(sizes))])
        if self._largest is None or max(sizes) > self._largest.bytes:
            self._largest = _named(lines[sizes.index(max(sizes))])

    def _add(self, kind: str, lines: Sequence[EncodedLine]) -> None:
        self._blobs[kind] += len(lines)
        self._bytes[kind] += sum(it.size for it in lines)
        number = _KINDS.index(kind)
        hashed = [it for it in lines if it.md5]
        md5s = bytes.fromhex(b"".join(it.md5 for it in hashed).decode())
        for begin, it in zip(range(0, len(md5s), 16), hashed, strict=True):
            record = _RECORD.pack(md5s[begin : begin + 16], it.size, number)
            self._buckets[md5s[begin] % _BUCKETS].write(record)
        if kind == "changed_from":
            return
        for folder, blobs in Counter(it.path.rpartition(b"/")[0] for it in lines).items():
            path = text_of(folder + b'/"') if folder else ""
            for grouping in (self._folders, self._labels, self._partitions):
                grouping.add(kind, path, blobs)
        if kind != "kept" and len(self._examples[kind]) < EXAMPLES:
            self._examples[kind] += [text_of(it.path) for it in lines[:EXAMPLES]]

    def result(self, version: str, base: str | None) -> Difference:
        """The difference; the contents are counted first."""
        for bucket in self._buckets:
            bucket.seek(0)
            for size, (kept, removed, added, _, changed) in _shared(bucket.read()):
                moved = min(added, removed)
                self._sum("moved", moved, size)
                self._sum("duplicates", max(0, kept + added + changed - 1), size)
                self._sum("duplicates_of_base", added - moved if kept else 0, size)
        return Difference(
            version=version,
            base=base,
            before=self._amount("kept", "removed", "changed_from"),
            after=self._amount("kept", "added", "changed"),
            added=self._amount("added", without="moved"),
            removed=self._amount("removed", without="moved"),
            changed=self._amount("changed"),
            moved=self._amount("moved"),
            duplicates=self._amount("duplicates"),
            duplicates_of_base=self._amount("duplicates_of_base"),
            without_md5=self._without_md5,
            smallest=self._smallest,
            largest=self._largest,
            sizes=dict(sorted(self._sizes.items())),
            folders=self._folders.result(),
            labels=self._labels.result(),
            partitions=self._partitions.result(),
            examples={
                kind: tuple(paths[:EXAMPLES]) for kind, paths in self._examples.items() if paths
            },
        )

    def _sum(self, kind: str, blobs: int, size: int) -> None:
        self._blobs[kind] += blobs
        self._bytes[kind] += blobs * size

    def _amount(self, *kinds: str, without: str | None = None) -> Amount:
        def total(sums: Counter[str]) -> int:
            return sum(sums[kind] for kind in kinds) - (sums[without] if without else 0)

        return Amount(blobs=total(self._blobs), bytes=total(self._bytes))


def _named(line: EncodedLine) -> NamedBlob:
    return NamedBlob(path=text_of(line.path), bytes=line.size)


def _shared(records: bytes) -> Iterator[tuple[int, Sequence[int]]]:
    """The size of each content that may be at several paths, and how many records of each kind."""
    counts = Counter(_RECORD.iter_unpack(records))
    once = _KINDS.index("kept")
    contents = {(md5, size) for (md5, size, kind), n in counts.items() if n > 1 or kind != once}
    for md5, size in contents:
        yield size, [counts[md5, size, kind] for kind in range(len(_KINDS))]


class _Grouping:
    """The blobs of each group, such as each folder."""

    def __init__(self, group_of: Callable[[str], str | None]) -> None:
        self._group_of = group_of
        self._groups: dict[str, Counter[str]] = {}
        self._left_out = 0

    def add(self, kind: str, folder: str, blobs: int) -> None:
        """Add the blobs of a folder: `` or a path that ends with `/`."""
        name = self._group_of(folder)
        if name is None:
            return
        if name not in self._groups and len(self._groups) == GROUPS_COUNTED:
            self._left_out += 1
        else:
            self._groups.setdefault(name, Counter())[kind] += blobs

    def result(self) -> Groups:
        groups = [
            Group(
                name=name,
                before=kinds["kept"] + kinds["removed"] + kinds["changed"],
                after=kinds["kept"] + kinds["added"] + kinds["changed"],
                added=kinds["added"],
                removed=kinds["removed"],
                changed=kinds["changed"],
            )
            for name, kinds in self._groups.items()
        ]
        groups.sort(key=lambda it: (-(it.added + it.removed + it.changed), it.name))
        return Groups(
            groups=tuple(groups[:GROUPS_LISTED]),
            left_out=self._left_out + max(0, len(groups) - GROUPS_LISTED),
        )
