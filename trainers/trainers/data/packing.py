"""From files to shards: the plan, and the packing of one shard.

A shard is a function of its files' content, so any process makes the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainers.data import samples
from trainers.data.image_file import check
from trainers.data.manifest import Entry, Manifest
from trainers.data.shard_formats import FORMATS, Row
from trainers.data.shard_index import GROUP, Shard, ShardIndex
from trainers.files import write_atomically

# Raise it when the same files make other shards.
_LAYOUT = 1


@dataclass(frozen=True, kw_only=True)
class ShardTask:
    """One shard to be made."""

    name: str
    storage: str
    entries: tuple[Entry, ...]

    @property
    def identity(self) -> str:
        """A hash of its files and of how it is made."""
        entries = [[entry.path, entry.size, entry.md5 or entry.etag] for entry in self.entries]
        made_from = [_LAYOUT, self.name, self.storage, entries]
        return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All shards of a dataset version."""

    version: str
    storage: str
    tasks: tuple[ShardTask, ...]

    @property
    def identity(self) -> str:
        """A hash of the files and of how the shards are made."""
        of_tasks = [self.version, *(task.identity for task in self.tasks)]
        return hashlib.sha256(json.dumps(of_tasks).encode()).hexdigest()

    @property
    def files(self) -> int:
        """The number of files in all shards, bad ones included."""
        return sum(len(task.entries) for task in self.tasks)

    def index(self, shards: Sequence[Shard]) -> ShardIndex:
        """The index of all shards."""
        return ShardIndex(
            identity=self.identity,
            dataset_version=self.version,
            storage=self.storage,
            files=self.files,
            shards=tuple(shards),
        )


def plan(manifest: Manifest, *, storage: str, shard_images: int, shard_bytes: int) -> Plan:
    """Cut the manifest's files into shards of at most so many images and bytes, of one or more."""
    parts: list[list[Entry]] = []
    room = 0
    for entry in samples.in_order(manifest.entries):
        if not parts or len(parts[-1]) == shard_images or entry.size > room:
            parts.append([])
            room = shard_bytes
        parts[-1].append(entry)
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
            )
            for number, entries in enumerate(parts)
        ),
    )


def pack_shard(source: Path, target: Path, task: ShardTask) -> Shard:
    """Make a shard, unless it is there already.

    Args:
        source: the folder of files.
        target: the folder of shards.
        task: describes the shard.

    Returns:
        Its record, which is written, too.

    Raises:
        DataChanged: files differ from the manifest, and no shard is written.
        OSError: a folder cannot be read or written.
    """
    if (shard := Shard.read(target, task.name, task.identity)) is not None:
        return shard
    found, bad = samples.decode_all(source, task.entries, _checked)
    train = [row for row, _ in found if not row.held_out]
    held_out = [row for row, _ in found if row.held_out]
    content, offsets = FORMATS[task.storage].encode([*_groups(train), *_groups(held_out)])
    shard = Shard(
        name=task.name,
        identity=task.identity,
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        train=len(train),
        held_out=len(held_out),
        offsets=tuple(offsets),
        classes=dict(Counter(row.label for row, _ in found)),
        fingerprint=samples.fingerprint((row.path, md5) for row, md5 in found),
        quarantined=tuple(bad),
    )
    write_atomically(target / task.name, content)
    shard.write(target)
    return shard


def _checked(entry: Entry, content: bytes, md5: str) -> tuple[Row, str]:
    label = samples.label_of(entry)
    check(content)
    return Row(
        path=entry.path, label=label, held_out=samples.is_held_out(md5), content=content
    ), md5


def _groups(rows: Sequence[Row]) -> list[Sequence[Row]]:
    return [rows[first : first + GROUP] for first in range(0, len(rows), GROUP)]
