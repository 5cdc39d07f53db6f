"""From files to shards: which file goes where, and one shard after another.

A shard is a function of its files' content, so whoever makes it makes the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from trainers.data import samples
from trainers.data.image_file import check
from trainers.data.manifest import Entry, Manifest
from trainers.data.samples import Changed, Content
from trainers.data.shard_formats import FORMATS, Row
from trainers.data.shard_index import GROUP, Shard, ShardIndex, ShardRecord
from trainers.errors import FileProblem
from trainers.files import write_atomically

# Changes when the same files would make other shards.
_LAYOUT = 1


@dataclass(frozen=True, kw_only=True)
class ShardTask:
    """One shard to be made."""

    name: str
    storage: str
    entries: tuple[Entry, ...]
    quick: bool

    @property
    def identity(self) -> str:
        """A hash of what it is made from, and how."""
        entries = [[entry.path, entry.size, entry.md5 or entry.etag] for entry in self.entries]
        made_from = [_LAYOUT, self.name, self.storage, self.quick, entries]
        return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All shards of a dataset version."""

    version: str
    storage: str
    tasks: tuple[ShardTask, ...]

    @property
    def identity(self) -> str:
        """A hash of what they are made from, and how."""
        of_tasks = [self.version, *(task.identity for task in self.tasks)]
        return hashlib.sha256(json.dumps(of_tasks).encode()).hexdigest()

    @property
    def files(self) -> int:
        """How many go into them, good or bad."""
        return sum(len(task.entries) for task in self.tasks)

    def index(self, records: Sequence[ShardRecord], *, max_bad_fraction: float) -> ShardIndex:
        """What the shards hold together.

        Raises:
            DataRejected: too many files are no samples, or the rest cannot be learned from.
        """
        quarantined = [problem for record in records for problem in record.quarantined]
        samples.check_bad_fraction(quarantined, self.files, max_bad_fraction)
        classes: Counter[str] = Counter()
        fingerprint = "0"
        for record in records:
            classes.update(record.classes)
            fingerprint = samples.fingerprint([], fingerprint, record.fingerprint)
        index = ShardIndex(
            identity=self.identity,
            dataset_version=self.version,
            storage=self.storage,
            files=self.files,
            classes={label: classes[label] for label in sorted(classes)},
            fingerprint=fingerprint,
            quarantined=tuple(sorted(quarantined, key=lambda problem: problem.path)),
            shards=tuple(record.shard for record in records),
        )
        train, held_out = index.samples(held_out=False), index.samples(held_out=True)
        samples.check_fit_to_learn(self.version, list(index.classes), train, held_out)
        return index


def plan(
    manifest: Manifest, *, storage: str, shard_images: int, shard_bytes: int, quick: bool
) -> Plan:
    """Cut the manifest's files into shards of at most so many images and bytes, of one or more."""
    stretches: list[list[Entry]] = []
    room = 0
    for entry in samples.in_order(manifest.entries):
        if not stretches or len(stretches[-1]) == shard_images or entry.size > room:
            stretches.append([])
            room = shard_bytes
        stretches[-1].append(entry)
        room -= entry.size
    suffix = FORMATS[storage].suffix
    return Plan(
        version=manifest.version,
        storage=storage,
        tasks=tuple(
            ShardTask(
                name=f"shard-{number:05d}.{suffix}",
                storage=storage,
                entries=tuple(entries),
                quick=quick,
            )
            for number, entries in enumerate(stretches)
        ),
    )


def pack_shard(
    source: Path, target: Path, task: ShardTask, readers: int
) -> ShardRecord | list[FileProblem]:
    """Make a shard, unless it is there already.

    Args:
        source: the folder of files.
        target: the folder of shards.
        task: which one.
        readers: files that are read at a time.

    Returns:
        Its record; or the files that are not what the manifest says, and then there is no shard.

    Raises:
        OSError: a folder cannot be read or written.
    """
    if (record := ShardRecord.read(target, task.name, task.identity)) is not None:
        return record
    outcomes = _read(source, task, readers)
    changed = [outcome.problem for outcome in outcomes if isinstance(outcome, Changed)]
    if changed:
        return changed
    found = [outcome for outcome in outcomes if isinstance(outcome, Content)]
    train = [content for content in found if not content.held_out]
    held_out = [content for content in found if content.held_out]
    shard_format = FORMATS[task.storage]
    content, offsets = shard_format.encode([*_groups(train), *_groups(held_out)])
    record = ShardRecord(
        identity=task.identity,
        shard=Shard(
            name=task.name,
            size=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
            train=len(train),
            held_out=len(held_out),
            offsets=tuple(offsets),
        ),
        classes=dict(Counter(content.label for content in found)),
        fingerprint=samples.fingerprint((content.path, content.md5) for content in found),
        quarantined=tuple(outcome for outcome in outcomes if isinstance(outcome, FileProblem)),
    )
    write_atomically(target / task.name, content)
    record.write(target)
    return record


def _read(source: Path, task: ShardTask, readers: int) -> list[Content | FileProblem | Changed]:
    def read(entries: Sequence[Entry]) -> list[Content | FileProblem | Changed]:
        return [_sample(source, entry, quick=task.quick) for entry in entries]

    if readers == 1:
        return read(task.entries)
    length = math.ceil(len(task.entries) / readers)
    stretches = [
        task.entries[first : first + length] for first in range(0, len(task.entries), length)
    ]
    with ThreadPoolExecutor(readers) as threads:
        return [outcome for part in threads.map(read, stretches) for outcome in part]


def _sample(source: Path, entry: Entry, *, quick: bool) -> Content | FileProblem | Changed:
    found = samples.read(source, entry)
    if isinstance(found, Content):
        reason = check(found.content, quick=quick)
        if reason is not None:
            return FileProblem(path=entry.path, reason=reason)
    return found


def _groups(contents: Sequence[Content]) -> Iterator[list[Row]]:
    rows = (
        Row(
            path=content.path,
            label=content.label,
            held_out=content.held_out,
            content=content.content,
        )
        for content in contents
    )
    while group := list(islice(rows, GROUP)):
        yield group
