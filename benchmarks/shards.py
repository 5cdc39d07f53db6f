"""Packing small files into shards, and reading them, against the files themselves."""

from __future__ import annotations

import hashlib
import io
import json
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.harness import Bench, Sample
from benchmarks.ranks import Ranks
from trainers.data.image_file import ImageFormat, decode
from trainers.data.manifest import read_manifest
from trainers.data.order import BLOCK
from trainers.data.samples import in_order
from trainers.data.shard_formats import FORMATS
from trainers.data.shard_index import GROUP, ShardIndex

IMAGES = 20_000
SIZE = 64
PER_SHARD = 2_000
RGB = ImageFormat(size=SIZE, mode="rgb")


def measure(bench: Bench) -> None:
    """20,000 JPEG crops of 64x64 pixels in 10 folders, some 1.6 kB each: `NAME=shards`.

    * packed images/s: what `python -m trainers.pack` prints, on two ranks: every file is read,
      compared with the manifest's size and MD5, decoded, and written into shards of 2,000, on disk
      with fsync.
    * packing s and packing CPU s: of both ranks, from their start to their exit.
    * cold and warm images/s: the bytes of all images, in the order of the samples, in one thread:
      file by file, or in blocks of 256 from shards. Cold: the files' pages have been dropped by
      posix_fadvise (directory entries stay in memory). Warm: read just before.
    * warm and decoded images/s: the same, decoded to 64x64 RGB.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_crops(folder / "files", folder / "manifest.jsonl", bench.rounds(IMAGES, 2_000))
        rounds = bench.rounds(5, 1)
        formats = {"Parquet": "parquet", "TFRecord": "tfrecord"}
        packing = {label: partial(_pack, folder, each) for label, each in formats.items()}
        bench.compare(packing, rounds)
        stored = {label: _shards(folder, each) for label, each in formats.items()}
        stored["small files"] = _files(folder)
        reading = {label: partial(_read, *each) for label, each in stored.items()}
        bench.compare(reading, rounds)


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


def _pack(folder: Path, storage: str) -> Sample:
    target = folder / f"{storage}-{time.monotonic_ns()}"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    said = _run_program(folder, target, storage)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    shutil.rmtree(target)
    return {
        "packed images/s": float(said.split()[-1]),
        "packing s": seconds,
        "packing CPU s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    }


def _run_program(folder: Path, target: Path, storage: str) -> str:
    arguments = [
        *("-m", "trainers.pack", str(folder / "files"), str(target)),
        *("--manifest", str(folder / "manifest.jsonl"), "--format", storage),
        *("--shard-images", str(PER_SHARD)),
    ]
    with Ranks(arguments) as ranks:
        return ranks.finish()


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
