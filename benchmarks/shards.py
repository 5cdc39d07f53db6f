"""Packing small files into shards, and reading them, against the files themselves."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import multiprocessing
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.harness import Bench, Contender, Sample
from benchmarks.ranks import running
from trainers.data.image_file import ImageFormat, decode
from trainers.data.manifest import read_manifest
from trainers.data.order import BLOCK
from trainers.data.samples import in_order
from trainers.data.shard_formats import FORMATS
from trainers.data.shard_index import GROUP, ShardIndex
from trainers.pack import ShardTask, pack_shard, plan

IMAGES = 20_000
SIZE = 64
PER_SHARD = 2_000
PROCESSES = 2
RGB = ImageFormat(size=SIZE, mode="rgb")


def measure(bench: Bench) -> None:
    """20,000 JPEG crops of 64x64 pixels in 10 folders, some 1.6 kB each: `NAME=shards`.

    * packed images/s: of two processes that run already: every file is read, compared with the
      manifest's size and MD5, decoded, and written into shards of 2,000, on disk with fsync.
    * packed images/CPU s: the same work by the time that a core spent on it, which other programs
      disturb less.
    * packing program s: `python -m trainers.pack` on two ranks, from start to exit.
    * cold and warm images/s: the bytes of all images, in the order of the samples, in one thread:
      file by file, or in blocks of 256 from shards. Cold: the files' pages have been dropped by
      posix_fadvise (directory entries stay in memory). Warm: read just before.
    * warm and decoded images/s: the same, decoded to 64x64 RGB.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_crops(folder / "files", folder / "manifest.jsonl", bench.rounds(IMAGES, 2_000))
        rounds = bench.rounds(5, 1)
        with ProcessPoolExecutor(
            PROCESSES, mp_context=multiprocessing.get_context("spawn")
        ) as pool:
            packed = functools.partial(_pack, folder, pool)
            list(pool.map(_nothing, range(PROCESSES * 4)))
            bench.compare(
                [
                    Contender("Parquet", functools.partial(packed, "parquet")),
                    Contender("TFRecord", functools.partial(packed, "tfrecord")),
                ],
                rounds,
            )
        bench.compare(
            [
                Contender(storage, functools.partial(_program, folder, storage))
                for storage in ("parquet", "tfrecord")
            ],
            rounds,
        )
        shards = {storage: _shards(folder, storage) for storage in ("parquet", "tfrecord")}
        bench.compare(
            [
                Contender("Parquet", lambda: _read(*shards["parquet"])),
                Contender("TFRecord", lambda: _read(*shards["tfrecord"])),
                Contender("small files", lambda: _read(*_files(folder))),
            ],
            rounds,
        )


def make_crops(files: Path, manifest: Path, count: int) -> None:
    """Write JPEG files of blurred noise, which compress about as photographs do."""
    random = np.random.default_rng(0)
    lines: list[str] = []
    for number in range(count):
        rough = Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8))
        smooth = np.asarray(rough.resize((SIZE, SIZE), Image.Resampling.BICUBIC), dtype=np.int16)
        pixels = (smooth + random.integers(-6, 7, smooth.shape)).clip(0, 255).astype(np.uint8)
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, "JPEG", quality=80)
        content = stream.getvalue()
        name = f"{number % 10}/{number:05d}.jpg"
        path = files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        lines.append(json.dumps({"path": name, "size": len(content), "md5": md5, "etag": None}))
    manifest.write_text("\n".join(lines) + "\n")


def _nothing(number: int) -> int:
    time.sleep(0.2)  # so that each process gets one
    return number


def _pack(folder: Path, pool: ProcessPoolExecutor, storage: str) -> Sample:
    target = folder / "packed"
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(target)
    target.mkdir()
    tasks = plan(
        read_manifest(folder / "manifest.jsonl"),
        storage=storage,
        shard_images=PER_SHARD,
        shard_bytes=2**26,
    )
    work = functools.partial(pack_shard, folder / "files", target)
    began = time.perf_counter()
    cpu_seconds = sum(pool.map(functools.partial(_cpu_seconds, work), tasks))
    seconds = time.perf_counter() - began
    images = sum(len(task.entries) for task in tasks)
    return {
        "packed images/s": images / seconds,
        "packed images/CPU s": images / cpu_seconds,
    }


def _cpu_seconds(work: Callable[[ShardTask], object], task: ShardTask) -> float:
    began = time.process_time()
    work(task)
    return time.process_time() - began


def _program(folder: Path, storage: str) -> Sample:
    began = time.perf_counter()
    _run_program(folder, folder / f"by-program-{time.monotonic_ns()}", storage)
    return {"packing program s": time.perf_counter() - began}


def _run_program(folder: Path, target: Path, storage: str) -> None:
    arguments = [
        *("-m", "trainers.pack", str(folder / "files"), str(target)),
        *("--manifest", str(folder / "manifest.jsonl"), "--format", storage),
        *("--shard-images", str(PER_SHARD)),
    ]
    with running(arguments, PROCESSES) as ranks:
        ranks.finish()


Contents = Callable[[], Iterator[Sequence[bytes]]]


def _shards(folder: Path, storage: str) -> tuple[list[Path], Contents]:
    target = folder / storage
    _run_program(folder, target, storage)
    index = ShardIndex.read(target)
    shard_format = FORMATS[storage]

    def contents() -> Iterator[Sequence[bytes]]:
        step = BLOCK // GROUP
        for shard in index.shards:
            for side in (False, True):
                groups = shard.groups(held_out=side)
                for first in range(0, len(groups), step):
                    part = groups[first : first + step]
                    rows = shard_format.read(target / shard.name, shard.offsets, part)
                    yield [row.image for row in rows]

    return [target / shard.name for shard in index.shards], contents


def _files(folder: Path) -> tuple[list[Path], Contents]:
    entries = in_order(read_manifest(folder / "manifest.jsonl").entries)
    paths = [folder / "files" / entry.path for entry in entries]

    def contents() -> Iterator[Sequence[bytes]]:
        for path in paths:
            with open(path, "rb", buffering=0) as stream:  # noqa: PTH123 - the fastest way
                yield [stream.read()]

    return paths, contents


def _read(paths: Sequence[Path], contents: Contents) -> Sample:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)  # only what is on disk can be dropped
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    sample: dict[str, float] = {}
    for name in ("cold images/s", "warm images/s"):
        began = time.perf_counter()
        images = sum(len(part) for part in contents())
        sample[name] = images / (time.perf_counter() - began)
    began = time.perf_counter()
    images = sum(decode(content, RGB).ndim == len("CHW") for part in contents() for content in part)
    sample["warm and decoded images/s"] = images / (time.perf_counter() - began)
    return sample
