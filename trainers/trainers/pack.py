"""Pack a folder of many small images into shards, which `--dataset shards` trains on.

    python -m trainers.pack SOURCE TARGET --manifest DIR_OR_FILE
    torchrun --nproc-per-node 8 -m trainers.pack SOURCE TARGET ...
    mpirun -np 8 python -m trainers.pack SOURCE TARGET ...

A shard is there whole or not at all, and the same files make the same bytes. Start the command
again after a crash: shards that are done are kept. index.json comes last; it is what counts.

Ranks need no connection: each packs its part, then waits for the others' shards to appear. Those
of a rank that died are made by the rest.

Exit codes: 0; 65 the data is unusable (DataRejected, DataChanged); 1 any other failure.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainers.arguments import Fraction, PositiveInteger, PositiveNumber, option, parse_options
from trainers.data import samples
from trainers.data.manifest import read_manifest
from trainers.data.packing import Plan, ShardTask, pack_shard, plan
from trainers.data.shard_formats import FORMATS
from trainers.data.shard_index import INDEX_NAME, Shard, ShardIndex, record_path
from trainers.errors import DataChanged, FileProblem, LaunchInvalid, TrainingError
from trainers.files import TEMPORARY_SUFFIX, check_writable
from trainers.parallelism.launch import Launch
from trainers.reports import error_file

_POLL_SECONDS = 0.5
# Another rank may be writing a younger file; a crash left an older one.
_STALE_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command line."""

    source: Path = option(..., "folder of SOURCE/<label>/<name>.png", "source")
    target: Path = option(..., "of shards and their index.json; of all ranks", "target")
    manifest: Path = option(..., "manifest.jsonl, or its folder")
    dataset_version: str | None = option(None, "default: computed from the manifest")
    format: str = option("parquet", choices=tuple(FORMATS))
    shard_images: PositiveInteger = option(8192, "at most so many in a shard")
    shard_mib: PositiveInteger = option(64, "at most so large a shard")
    max_bad_fraction: Fraction = option(0.01, "of files that may be bad")
    output_dir: Path | None = option(None, "where error.json is left on failure")
    patience_seconds: PositiveNumber = option(
        60.0, "after so long without a new shard from the other ranks, theirs are packed here"
    )


def pack(options: Options, launch: Launch) -> Plan:
    """Pack this rank's part, wait for the other parts or pack them, and write the index.

    Raises:
        DataRejected, DataChanged: see `trainers.data.samples`.
        LaunchInvalid: the source is not a folder; the target is in it, or cannot be written to.
    """
    source, target = options.source.resolve(), options.target.resolve()
    samples.check_folder(source)
    if target.is_relative_to(source):
        raise LaunchInvalid(f"{target} is in {source}: shards would be packed in the next run")
    check_writable(target, "TARGET")
    whole = plan(
        read_manifest(options.manifest, options.dataset_version),
        storage=options.format,
        shard_images=options.shard_images,
        shard_bytes=options.shard_mib * 2**20,
    )
    _drop_other_index(target, whole)
    _pack_all(source, target, whole.tasks[launch.rank :: launch.size], whole.files)
    rest = _left(target, whole, options.patience_seconds, time.monotonic, time.sleep)
    _pack_all(source, target, rest, whole.files)
    shards = [Shard.read(target, task.name, task.identity) for task in whole.tasks]
    found = [shard for shard in shards if shard is not None]
    if len(found) != len(shards):
        raise LaunchInvalid(
            f"shards in {target} were removed: another packing with other options writes there"
        )
    index = whole.index(found)
    index.check(options.max_bad_fraction)
    index.write(target)
    if launch.rank == 0:
        _sweep(target, whole)
    return whole


def _pack_all(source: Path, target: Path, tasks: Sequence[ShardTask], files: int) -> None:
    changed: list[FileProblem] = []
    for task in tasks:
        try:
            pack_shard(source, target, task)
        except DataChanged as error:
            changed += error.problems
    samples.check_unchanged(changed, files)


def _left(
    target: Path,
    whole: Plan,
    patience_seconds: float,
    clock: Callable[[], float],
    sleep: Callable[[float], object],
) -> list[ShardTask]:
    """Wait for the other ranks' shards; returns those that do not appear."""
    missing = list(whole.tasks)
    last_seen = clock()
    while True:
        still = [task for task in missing if Shard.read(target, task.name, task.identity) is None]
        if len(still) < len(missing):
            missing, last_seen = still, clock()
        if not missing or clock() - last_seen > patience_seconds:
            return missing
        sleep(_POLL_SECONDS)


def _drop_other_index(target: Path, whole: Plan) -> None:
    """Remove the index of another plan."""
    try:
        same = ShardIndex.read(target).identity == whole.identity
    except TrainingError:
        same = False
    if not same:
        (target / INDEX_NAME).unlink(missing_ok=True)


def _sweep(target: Path, whole: Plan) -> None:
    """Remove the shards of other plans, and temporary files that a crash left."""
    names = {task.name for task in whole.tasks}
    kept = names | {record_path(target, name).name for name in names}
    for path in target.glob("shard-*"):
        if path.name.endswith(TEMPORARY_SUFFIX):
            if time.time() - path.stat().st_mtime > _STALE_SECONDS:
                path.unlink(missing_ok=True)
        elif path.name not in kept:
            path.unlink(missing_ok=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line above; returns the exit code."""
    options = parse_options(Options, "trainers.pack", __doc__ or "", arguments)
    try:
        launch = Launch.from_environment(os.environ)
        if options.output_dir is not None and launch.rank == 0:
            error_file.clear_error(options.output_dir)
        began = time.perf_counter()
        whole = pack(options, launch)
        seconds = time.perf_counter() - began
    except Exception as error:  # noqa: BLE001  # the edge of the process
        if not isinstance(error, TrainingError):
            traceback.print_exception(error)
        return error_file.write_failure(options.output_dir, error)
    if launch.rank == 0:
        index = ShardIndex.read(options.target)
        sys.stdout.write(
            f"dataset {index.dataset_version}: {index.samples(held_out=False)} images to train on, "
            f"{index.samples(held_out=True)} held out, {len(index.classes)} classes, "
            f"{len(index.quarantined)} quarantined; {len(index.shards)} {index.storage} shards, "
            f"{sum(shard.size for shard in index.shards)} bytes; "
            f"images/s {whole.files / seconds:.0f}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
