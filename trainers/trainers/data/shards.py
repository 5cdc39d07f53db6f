"""A dataset in shards. Images are read on demand, a block at a time."""

from __future__ import annotations

import functools
import itertools
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from trainers.data.dataset import Dataset, DatasetRequest
from trainers.data.image_file import ImageFormat, decode
from trainers.data.images import Originals, Samples, View
from trainers.data.manifest import read_manifest
from trainers.data.order import BLOCK, blocks_in_use
from trainers.data.shard_formats import FORMATS, Row, ShardDamaged
from trainers.data.shard_index import GROUP, Shard, ShardIndex
from trainers.errors import DataChanged, DataRejected, FileProblem, LaunchInvalid


@dataclass(eq=False)
class ShardSource(Originals):
    """The samples of one side of the split. The last used blocks stay in memory, encoded."""

    index: ShardIndex
    folder: Path
    image_format: ImageFormat
    held_out: bool
    """Whether these are the held-out samples."""
    blocks_held: int
    """The largest number of blocks in memory."""
    decode_threads: int
    """The number of decoder threads. Several help with large images only."""

    def __post_init__(self) -> None:
        self._format = FORMATS[self.index.storage]
        self._label_numbers = {label: number for number, label in enumerate(self.index.classes)}
        counts = [each.held_out if self.held_out else each.train for each in self.index.shards]
        self._ends = list(itertools.accumulate(counts))
        self._block = functools.lru_cache(maxsize=self.blocks_held)(self._read)
        self._map = map
        if self.decode_threads > 1:
            threads = ThreadPoolExecutor(self.decode_threads, thread_name_prefix="decode")
            self._map = threads.map

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @property
    def blocks_read(self) -> int:
        """The number of block reads so far."""
        return self._block.cache_info().misses

    def views(self, numbers: Tensor, view: View, draws: Tensor) -> Samples:
        """Return views of these images, in that order.

        Raises:
            DataChanged: a shard differs from what was packed.
            DataRejected: an image cannot be decoded.
        """
        rows = [self._block(number // BLOCK)[number % BLOCK] for number in numbers.tolist()]

        def made(row: Row, draw: list[float]) -> Tensor:
            return view(self._decode(row), draw)

        return Samples(
            inputs=torch.stack([*self._map(made, rows, draws.tolist())]),
            labels=torch.tensor([self._label_numbers[row.label] for row in rows]),
        )

    def _read(self, block: int) -> list[Row]:
        """Read the samples of a block, which may span several shards."""
        rows: list[Row] = []
        first, end = block * BLOCK, min((block + 1) * BLOCK, len(self))
        while first < end:
            number = bisect_right(self._ends, first)
            shard, begin = self.index.shards[number], self._ends[number - 1] if number else 0
            last = min(end, self._ends[number])
            groups = shard.groups(held_out=self.held_out)
            group, skipped = divmod(first - begin, GROUP)
            found = self._read_groups(shard, groups[group : (last - begin - 1) // GROUP + 1])
            rows += found[skipped : skipped + last - first]
            first = last
        return rows

    def _read_groups(self, shard: Shard, groups: range) -> list[Row]:
        try:
            return self._format.read(self.folder / shard.name, shard.offsets, groups)
        except (ShardDamaged, FileNotFoundError) as error:
            raise DataChanged(
                f"the shard {shard.name} differs from the packed one ({error}): pack again",
                [FileProblem(path=shard.name, reason=str(error))],
            ) from error

    def _decode(self, row: Row) -> Image.Image:
        try:
            return decode(row.image, self.image_format)
        except ValueError as error:
            raise DataRejected(
                f"{row.path} cannot be decoded ({error}): fix or remove it and pack again",
                [FileProblem(path=row.path, reason=str(error))],
            ) from error


def load_shards(request: DatasetRequest) -> Dataset:
    """Load the shards that `trainers.pack` wrote to the request's folder.

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
    source = functools.partial(
        ShardSource, index, request.data, decode_threads=request.decode_threads
    )
    held_out_as = functools.partial(source, held_out=True, blocks_held=1)
    blocks_held = blocks_in_use(
        index.samples(held_out=False),
        shuffle_window=request.shuffle_window,
        batch_size=request.batch_size,
        ranks=request.ranks,
    )
    return Dataset(
        version=index.dataset_version,
        classes=index.classes,
        train=source(request.image_format, held_out=False, blocks_held=blocks_held),
        held_out=held_out_as(request.image_format),
        held_out_as=held_out_as,
        fingerprint=index.fingerprint,
        quarantined=index.quarantined,
    )


def _check_version(index: ShardIndex, request: DatasetRequest) -> None:
    wanted = request.dataset_version
    if request.manifest is not None:
        wanted = read_manifest(request.manifest, wanted).version
    if wanted is not None and wanted != index.dataset_version:
        raise DataChanged(
            f"the shards in {request.data} are of dataset version {index.dataset_version}, not "
            f"{wanted}: pack again"
        )
