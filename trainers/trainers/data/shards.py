"""A dataset in shards: images are read when they are trained on, a block at a time."""

from __future__ import annotations

import functools
import itertools
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from trainers.data.dataset import Dataset, DatasetRequest
from trainers.data.image_file import ImageFormat, decode
from trainers.data.images import Samples
from trainers.data.manifest import read_manifest
from trainers.data.order import BLOCK, blocks_in_use
from trainers.data.shard_formats import FORMATS, Row, ShardDamaged
from trainers.data.shard_index import GROUP, Shard, ShardIndex
from trainers.errors import DataChanged, DataRejected, FileProblem, LaunchInvalid


class ShardSource:
    """The samples of one side, by number. The last used blocks stay in memory, encoded.

    Args:
        index: of the shards.
        folder: holds them.
        image_format: what images are decoded to.
        held_out: the side.
        blocks_held: at most so many.
        decode_threads: of decoding. Decoders release Python's lock, so that large images gain from
            several; small ones do not.
    """

    def __init__(
        self,
        index: ShardIndex,
        folder: Path,
        image_format: ImageFormat,
        *,
        held_out: bool,
        blocks_held: int,
        decode_threads: int,
    ) -> None:
        self._shards = index.shards
        self._folder = folder
        self._format = FORMATS[index.storage]
        self._image_format = image_format
        self._held_out = held_out
        self._blocks_held = blocks_held
        self._label_numbers = {label: number for number, label in enumerate(index.classes)}
        counts = [shard.held_out if held_out else shard.train for shard in index.shards]
        self._ends = list(itertools.accumulate(counts))
        self._blocks: OrderedDict[int, list[Row]] = OrderedDict()
        self._lock = threading.Lock()
        self._decode_threads = decode_threads
        self._threads = ThreadPoolExecutor(decode_threads, thread_name_prefix="decode")
        self.blocks_read = 0

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def take(self, numbers: Tensor) -> Samples:
        """The images of these numbers, in that order.

        Raises:
            DataChanged: a shard differs from the packed one.
            DataRejected: an image cannot be decoded.
        """
        rows = self._rows(numbers.tolist())
        return Samples(
            inputs=torch.from_numpy(np.stack(self._decoded(rows))),
            labels=torch.tensor([self._label_numbers[row.label] for row in rows]),
        )

    def _rows(self, numbers: Sequence[int]) -> list[Row]:
        with self._lock:
            return [self._block(number // BLOCK)[number % BLOCK] for number in numbers]

    def _block(self, block: int) -> list[Row]:
        if block in self._blocks:
            self._blocks.move_to_end(block)
            return self._blocks[block]
        rows = self._read(block * BLOCK, min((block + 1) * BLOCK, len(self)))
        self.blocks_read += 1
        self._blocks[block] = rows
        if len(self._blocks) > self._blocks_held:
            self._blocks.popitem(last=False)
        return rows

    def _read(self, first: int, end: int) -> list[Row]:
        """The samples `first` to `end - 1`, which may lie in several shards."""
        rows: list[Row] = []
        shard_number = bisect_right(self._ends, first)
        while first < end:
            shard = self._shards[shard_number]
            begin = self._ends[shard_number - 1] if shard_number else 0
            last = min(end, self._ends[shard_number])
            if first < last:
                of_side = shard.groups(held_out=self._held_out)
                groups = of_side[(first - begin) // GROUP : (last - begin - 1) // GROUP + 1]
                skipped = (first - begin) // GROUP * GROUP
                found = self._read_groups(shard, groups)
                rows += found[first - begin - skipped : last - begin - skipped]
                first = last
            shard_number += 1
        return rows

    def _read_groups(self, shard: Shard, groups: range) -> list[Row]:
        try:
            return self._format.read(self._folder / shard.name, shard.offsets, groups)
        except (ShardDamaged, FileNotFoundError) as error:
            raise DataChanged(
                f"the shard {shard.name} differs from the packed one ({error}): pack again",
                [FileProblem(path=shard.name, reason=str(error))],
            ) from error

    def _decoded(self, rows: Sequence[Row]) -> list[np.ndarray]:
        length = -(-len(rows) // self._decode_threads)
        parts = [rows[first : first + length] for first in range(0, len(rows), length)]

        def decode_all(part: Sequence[Row]) -> list[np.ndarray]:
            return [self._decode(row) for row in part]

        return [pixels for part in self._threads.map(decode_all, parts) for pixels in part]

    def _decode(self, row: Row) -> np.ndarray:
        try:
            return decode(row.content, self._image_format)
        except ValueError as error:
            raise DataRejected(
                f"{row.path} cannot be decoded ({error}): mend or remove it and pack again",
                [FileProblem(path=row.path, reason=str(error))],
            ) from error


def load_shards(request: DatasetRequest) -> Dataset:
    """The shards that `trainers.pack` wrote to the request's folder.

    Raises:
        LaunchInvalid: the request names no folder.
        DataRejected: there is no index, too many files are bad, or the rest cannot be learned from.
        DataChanged: a shard is missing or changed, or the shards are of another dataset version.
    """
    if request.data is None:
        raise LaunchInvalid("--dataset shards needs --data: the folder that trainers.pack filled")
    index = ShardIndex.read(request.data)
    _check_version(index, request)
    index.check(request.max_bad_fraction)
    held_out_as = functools.partial(
        ShardSource,
        index,
        request.data,
        held_out=True,
        blocks_held=1,
        decode_threads=request.decode_threads,
    )
    return Dataset(
        version=index.dataset_version,
        classes=index.classes,
        train=ShardSource(
            index,
            request.data,
            request.image_format,
            held_out=False,
            blocks_held=blocks_in_use(
                index.samples(held_out=False),
                shuffle_window=request.shuffle_window,
                batch_size=request.batch_size,
                ranks=request.ranks,
            ),
            decode_threads=request.decode_threads,
        ),
        held_out=held_out_as(request.image_format),
        held_out_as=held_out_as,
        fingerprint=index.fingerprint,
        quarantined=index.quarantined,
    )


def _check_version(index: ShardIndex, request: DatasetRequest) -> None:
    wanted = request.dataset_version
    if request.manifest is not None:
        wanted = read_manifest(request.manifest, request.dataset_version).version
    if wanted is not None and wanted != index.dataset_version:
        raise DataChanged(
            f"the shards in {request.data} are of dataset version {index.dataset_version}, not "
            f"{wanted}: pack again"
        )
