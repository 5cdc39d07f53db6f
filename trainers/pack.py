"""Pack a folder of many small images into shards, which `--dataset shards` trains on.

    python -m trainers.pack SOURCE TARGET --manifest DIR_OR_FILE
    torchrun --nproc-per-node 2 -m trainers.pack SOURCE TARGET ...
    mpirun -np 2 python -m trainers.pack SOURCE TARGET ...

A shard is there whole or not at all, and the same files make the same bytes. Start the command
again after a crash: shards that are done are kept. index.json comes last; it is what counts.

Ranks need no connection: each packs its part, then waits for the others' shards to appear. Those
of a rank that died are made by the rest.

Exit codes: 0; 65 the data is unusable (DataRejected, DataChanged); 1 any other failure.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import multiprocessing
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from trainers.arguments import fraction, positive_integer, positive_number
from trainers.data import samples
from trainers.data.manifest import Manifest, freeze, read_manifest
from trainers.data.packing import Plan, ShardTask, pack_shard, plan
from trainers.data.shard_formats import FORMATS
from trainers.data.shard_index import INDEX_NAME, ShardIndex, ShardRecord, record_path
from trainers.errors import EX_FAILURE, FileProblem, LaunchInvalid, TrainingError
from trainers.files import TEMPORARY_SUFFIX, check_writable
from trainers.parallelism.launch import Launch

_POLL_SECONDS = 0.5
# Another rank may be writing a younger file; a crash left an older one.
_STALE_SECONDS = 3600.0

Outcome = ShardRecord | list[FileProblem]
Work = Callable[[ShardTask], Outcome]
Run = Callable[[Work, Sequence[ShardTask]], Iterable[Outcome]]


def pack(options: argparse.Namespace, launch: Launch, progress: Callable[[int, int], None]) -> Plan:
    """Pack this rank's part, wait for the other parts or pack them, and write the index.

    Args:
        options: the command line.
        launch: which rank this is.
        progress: gets the numbers of shards that this rank has packed and will pack.

    Raises:
        DataRejected, DataChanged: see `trainers.data.samples`.
        LaunchInvalid: the source is not a folder; the target is in it, or cannot be written to.
    """
    source: Path = options.source.resolve()
    target: Path = options.target.resolve()
    samples.check_folder(source)
    if target.is_relative_to(source):
        raise LaunchInvalid(f"{target} is in {source}: shards would be packed in the next run")
    check_writable(target, "TARGET")
    with _workers(options.processes or _processes(launch)) as run:
        manifest = _manifest(options, source)
        whole = plan(
            manifest,
            storage=options.format,
            shard_images=options.shard_images,
            shard_bytes=options.shard_mib * 2**20,
            quick=options.check == "quick",
        )
        _drop_other_index(target, whole)
        work = functools.partial(_pack, source, target, readers=options.readers)
        _run(run, work, whole.tasks[launch.rank :: launch.size], whole.files, progress)
        rest = _left(target, whole, options.patience_seconds, time.monotonic, time.sleep)
        _run(run, work, rest, whole.files, progress)
    records = [ShardRecord.read(target, task.name, task.identity) for task in whole.tasks]
    found = [record for record in records if record is not None]
    if len(found) != len(records):
        raise LaunchInvalid(
            f"shards in {target} were removed: another packing with other options writes there"
        )
    whole.index(found, max_bad_fraction=options.max_bad_fraction).write(target)
    if launch.rank == 0:
        _sweep(target, whole)
    return whole


def _run(
    run: Run,
    work: Work,
    tasks: Sequence[ShardTask],
    files: int,
    progress: Callable[[int, int], None],
) -> None:
    changed: list[FileProblem] = []
    for done, outcome in enumerate(run(work, tasks), start=1):
        if not isinstance(outcome, ShardRecord):
            changed += outcome
        progress(done, len(tasks))
    samples.check_unchanged(changed, files)


def _pack(source: Path, target: Path, task: ShardTask, *, readers: int) -> Outcome:
    return pack_shard(source, target, task, readers)


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
        still = [
            task for task in missing if ShardRecord.read(target, task.name, task.identity) is None
        ]
        if len(still) < len(missing):
            missing, last_seen = still, clock()
        if not missing or clock() - last_seen > patience_seconds:
            return missing
        sleep(_POLL_SECONDS)


@contextlib.contextmanager
def _workers(processes: int) -> Generator[Run]:
    """A function that runs tasks in so many processes, or in this one."""
    if processes == 1:
        yield map
        return
    with ProcessPoolExecutor(
        processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_end_with_parent,
    ) as pool:

        def run(work: Work, tasks: Sequence[ShardTask]) -> Iterator[Outcome]:
            for future in as_completed([pool.submit(work, task) for task in tasks]):
                yield future.result()

        yield run


def _end_with_parent() -> None:
    """End a worker when its parent is killed: it holds its task pipe open and would wait on it."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(EX_FAILURE)

    threading.Thread(target=wait, daemon=True).start()


def _processes(launch: Launch) -> int:
    if launch.size > 1:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def _manifest(options: argparse.Namespace, source: Path) -> Manifest:
    if options.manifest is not None:
        return read_manifest(options.manifest, options.dataset_version)
    return freeze(source, options.dataset_version)


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


def _show_progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        sys.stderr.write(f"\rshard {done} of {total}{end}")
        sys.stderr.flush()


def _fail(output: Path | None, error: Exception) -> int:
    """Write a failure to stderr and error.json; returns the exit code."""
    if not isinstance(error, TrainingError):
        traceback.print_exception(error)
    sys.stderr.write(f"{type(error).__name__}: {error}\n")
    if output is not None:
        from trainers.reports import results  # noqa: PLC0415  # it imports torch

        try:
            results.write_error(output, error)
        except OSError:  # the exit code still reports the failure
            traceback.print_exc()
    return error.exit_code if isinstance(error, TrainingError) else EX_FAILURE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line above; returns the exit code."""
    options = _parse(arguments)
    try:
        launch = Launch.from_environment(os.environ)
        if options.output_dir is not None and launch.rank == 0:
            from trainers.reports import results  # noqa: PLC0415  # the same

            results.clear_error(options.output_dir)
        began = time.perf_counter()
        whole = pack(options, launch, _show_progress)
        seconds = time.perf_counter() - began
    except Exception as error:  # noqa: BLE001  # the edge of the process
        return _fail(options.output_dir, error)
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


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m trainers.pack",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=True,
    )
    add = parser.add_argument
    add("source", type=Path, help="folder of SOURCE/<label>/<name>.png")
    add("target", type=Path, help="of shards and their index.json; all ranks see the same one")
    add(
        "--manifest",
        type=Path,
        help="manifest.jsonl, or its folder; without it all files are packed, and read once more",
    )
    add("--dataset-version", help="default: computed from the manifest")
    add("--format", choices=tuple(FORMATS), default="parquet")
    add("--processes", type=positive_integer, help="of each rank; default: a core each, or 1")
    add("--readers", type=positive_integer, default=8, help="files that a process reads at a time")
    add("--shard-images", type=positive_integer, default=8192, help="at most so many in a shard")
    add("--shard-mib", type=positive_integer, default=64, help="at most so large a shard")
    add(
        "--check",
        choices=("decode", "quick"),
        default="decode",
        help="quick: decode only images that do not begin and end as images do; damage within "
        "others ends the training that meets it",
    )
    add("--max-bad-fraction", type=fraction, default=0.01, help="of files that may be bad")
    add("--output-dir", type=Path, help="where error.json is left on failure")
    add(
        "--patience-seconds",
        type=positive_number,
        default=60.0,
        help="after so long without a new shard from the other ranks, theirs are packed here",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
