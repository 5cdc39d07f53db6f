"""Pack a folder of many small images into shards, which `--dataset shards` trains on.

    python -m trainers.pack SOURCE TARGET --manifest DIR_OR_FILE
    torchrun --nproc-per-node 8 -m trainers.pack SOURCE TARGET ...
    mpirun -np 8 python -m trainers.pack SOURCE TARGET ...

Shards are written atomically, and the same files make the same bytes. Start the command again after
a crash: complete shards are kept. index.json is written last, and marks the folder as complete.

Ranks need no connection: each packs its part, then the shards that the others have not packed yet.
So the death of a rank does not stop the others.

Exit codes: 0; 65 the data is unusable (DataRejected, DataChanged); 1 any other failure.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainers.arguments import Fraction, PositiveInteger, option, parse_options
from trainers.data import samples
from trainers.data.image_file import check
from trainers.data.manifest import Entry, Manifest, read_manifest
from trainers.data.samples import Decoded
from trainers.data.shard_formats import FORMATS, Row
from trainers.data.shard_index import GROUP, INDEX_NAME, Shard, ShardIndex, record_path
from trainers.errors import DataChanged, FileProblem, LaunchInvalid, TrainingError
from trainers.files import TEMPORARY_SUFFIX, check_writable, write_atomically
from trainers.parallelism.launch import Launch
from trainers.reports import error_file

# Increase it when the code changes the shards that it makes from the same files.
_LAYOUT = 2
# Older temporary files are remains of a crash; another rank may still write a newer one.
_STALE_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command line."""

    source: Path = option(..., "folder of SOURCE/<label>/<name>.png", is_positional=True)
    target: Path = option(..., "of shards and their index.json", is_positional=True)
    manifest: Path = option(..., "manifest.jsonl, or its folder")
    dataset_version: str | None = option(None, "default: computed from the manifest")
    format: Literal["parquet", "tar"] = option("parquet")
    shard_images: PositiveInteger = option(8192, "at most so many in a shard")
    shard_mib: PositiveInteger = option(64, "at most so large a shard")
    max_bad_fraction: Fraction = option(0.01, "of files that may be bad")
    output_dir: Path | None = option(None, "where error.json is left on failure")


@dataclass(frozen=True, kw_only=True)
class ShardTask:
    """A shard to make: its name, its format, and the files in it."""

    name: str
    storage: str
    entries: tuple[Entry, ...]

    @property
    def identity(self) -> str:
        """A hash of the files and the format: a shard with another one is packed again."""
        entries = [[entry.path, entry.size, entry.md5 or entry.etag] for entry in self.entries]
        made_from = [_LAYOUT, self.name, self.storage, entries]
        return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()


def pack(options: Options, launch: Launch) -> ShardIndex:
    """Pack this rank's part and the remaining shards of the others, and write the index.

    Raises:
        DataRejected, DataChanged: see `trainers.data.samples`.
        LaunchInvalid: the source is not a folder; the target is in the source, or not writable.
    """
    source, target = options.source.resolve(), options.target.resolve()
    samples.check_folder(source)
    if target.is_relative_to(source):
        raise LaunchInvalid(f"{target} is in {source}: shards would be packed in the next run")
    check_writable(target, "TARGET")
    manifest = read_manifest(options.manifest, options.dataset_version)
    tasks = plan(
        manifest,
        storage=options.format,
        shard_images=options.shard_images,
        shard_bytes=options.shard_mib * 2**20,
    )
    _remove_others(target, tasks)
    shards = _pack_all(source, target, in_order_of_rank(tasks, launch))
    index = ShardIndex(
        dataset_version=manifest.version,
        storage=options.format,
        shards=tuple(shards[task.name] for task in tasks),
    )
    index.check(options.max_bad_fraction)
    index.write(target)
    return index


def plan(
    manifest: Manifest, *, storage: str, shard_images: int, shard_bytes: int
) -> list[ShardTask]:
    """Divide the manifest's files into shards of limited size, with at least one image each."""
    parts: list[list[Entry]] = []
    room = 0
    for entry in samples.in_order(manifest.entries):
        if not parts or len(parts[-1]) == shard_images or entry.size > room:
            parts.append([])
            room = shard_bytes
        parts[-1].append(entry)
        room -= entry.size
    return [
        ShardTask(name=f"shard-{number:05d}.{storage}", storage=storage, entries=tuple(entries))
        for number, entries in enumerate(parts)
    ]


def in_order_of_rank(tasks: list[ShardTask], launch: Launch) -> list[ShardTask]:
    """Return all tasks, the rank's own first. The others are reversed, with a start per rank.

    So ranks that help a slow rank seldom make the same shard at the same time. If they do, they
    write the same bytes.
    """
    first = len(tasks) * launch.rank // launch.size
    others = [task for n, task in enumerate(tasks) if n % launch.size != launch.rank]
    return [*tasks[launch.rank :: launch.size], *reversed(others[first:] + others[:first])]


def _pack_all(source: Path, target: Path, tasks: Sequence[ShardTask]) -> dict[str, Shard]:
    changed: list[FileProblem] = []
    shards: dict[str, Shard] = {}
    for task in tasks:
        try:
            shards[task.name] = pack_shard(source, target, task)
        except DataChanged as error:
            changed += error.problems
    samples.check_unchanged(changed, sum(len(task.entries) for task in tasks))
    return shards


def pack_shard(source: Path, target: Path, task: ShardTask) -> Shard:
    """Make a shard of files in `source`, unless `target` already has it; return its record.

    Raises:
        DataChanged: files differ from the manifest; the shard is not written.
        OSError: a folder cannot be read or written.
    """
    if (shard := Shard.read(target, task.name, task.identity)) is not None:
        return shard
    found, bad = samples.decode_all(source, task.entries, _row)
    train, held_out = samples.split(found)
    content, offsets = FORMATS[task.storage].encode([*_groups(train), *_groups(held_out)])
    shard = Shard(
        name=task.name,
        identity=task.identity,
        size=len(content),
        train=len(train),
        held_out=len(held_out),
        offsets=offsets,
        classes=sorted({each.value.label for each in found}),
        fingerprint=samples.fingerprint(found),
        quarantined=bad,
    )
    write_atomically(target / task.name, content)
    shard.write(target)
    return shard


def _row(entry: Entry, content: bytes) -> Row:
    row = Row(path=entry.path, label=samples.label_of(entry), image=content)
    check(content)
    return row


def _groups(found: Sequence[Decoded[Row]]) -> list[list[Row]]:
    rows = [each.value for each in found]
    return [rows[first : first + GROUP] for first in range(0, len(rows), GROUP)]


def _remove_others(target: Path, tasks: Sequence[ShardTask]) -> None:
    """Remove the index and shards of other plans, and the temporary files of crashed ranks."""
    kept = {name for task in tasks for name in (task.name, record_path(target, task.name).name)}
    try:
        shards = ShardIndex.read(target).shards
        if [shard.identity for shard in shards] == [task.identity for task in tasks]:
            kept.add(INDEX_NAME)
    except TrainingError:
        pass  # an unreadable index is removed
    for path in (target / INDEX_NAME, *target.glob("shard-*")):
        with contextlib.suppress(FileNotFoundError):  # another rank may remove it
            is_written = path.suffix == TEMPORARY_SUFFIX and (
                time.time() - path.stat().st_mtime < _STALE_SECONDS
            )
            if path.name not in kept and not is_written:
                path.unlink()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line above; return the exit code."""
    options = parse_options(Options, "trainers.pack", __doc__ or "", arguments)
    try:
        launch = Launch.from_environment(os.environ)
        if options.output_dir is not None and launch.rank == 0:
            error_file.clear_error(options.output_dir)
        began = time.perf_counter()
        index = pack(options, launch)
        seconds = time.perf_counter() - began
    except Exception as error:  # noqa: BLE001  # the edge of the process
        if not isinstance(error, TrainingError):
            traceback.print_exception(error)
        return error_file.write_failure(options.output_dir, error)
    if launch.rank == 0:
        train, held_out = index.samples(held_out=False), index.samples(held_out=True)
        sys.stdout.write(
            f"dataset {index.dataset_version}: {train} images to train on, {held_out} held out, "
            f"{len(index.classes)} classes, {len(index.quarantined)} quarantined; "
            f"{len(index.shards)} {index.storage} shards, "
            f"{sum(shard.size for shard in index.shards)} bytes; "
            f"images/s {(train + held_out) / seconds:.0f}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
