"""Rank coordinates: the mesh of pipeline stage, data rank and tensor rank.

| ranks that differ only in | hold |
|---|---|
| the data coordinate | the same weights (or shards of them), different images |
| the tensor coordinate | different parts of the same layers, the same images |
| the stage | different layers, the same images |

The tensor coordinate varies fastest and the stage slowest: consecutive ranks share a machine, and
the exchange between parts of a layer is the heaviest, that between stages the lightest.
Source: Narayanan et al., arXiv 2104.04473, sections 2 and 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
import torch.distributed as dist
from torch import Tensor

from trainers.errors import LaunchInvalid
from trainers.parallelism.options import ParallelOptions
from trainers.parallelism.world import World

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

PIPELINE, DATA, TENSOR = "pipeline", "data", "tensor"


@dataclass(frozen=True, kw_only=True)
class RankCoordinates:
    """A rank's coordinates, and the size of each dimension."""

    stage: int = 0
    data_rank: int = 0
    tensor_rank: int = 0
    stages: int = 1
    data_ranks: int = 1
    tensor_ranks: int = 1

    @classmethod
    def of_rank(cls, rank: int, size: int, *, stages: int, tensor_ranks: int) -> RankCoordinates:
        """Return the coordinates of `rank` among `size` ranks.

        Raises:
            LaunchInvalid: `size` is not a multiple of stages times tensor ranks.
        """
        rest = stages * tensor_ranks
        if size % rest:
            raise LaunchInvalid(
                f"{size} ranks are no multiple of --pipeline-parallel {stages} times "
                f"--tensor-parallel {tensor_ranks}: start a multiple of {rest} ranks"
            )
        data_ranks = size // rest
        row, tensor_rank = divmod(rank, tensor_ranks)
        stage, data_rank = divmod(row, data_ranks)
        return cls(
            stage=stage,
            data_rank=data_rank,
            tensor_rank=tensor_rank,
            stages=stages,
            data_ranks=data_ranks,
            tensor_ranks=tensor_ranks,
        )

    def share(self, items: Tensor) -> Tensor:
        """Return this rank's part of a batch: every `data_ranks`-th item."""
        return items[self.data_rank :: self.data_ranks]

    def passes(self, items: int, *, at_once: int) -> list[Tensor]:
        """This rank's item numbers by pass. All ranks have as many passes; some may be empty.

        They are consecutive, so that the ranks together read each part of the storage once.
        """
        largest_share = -(-items // self.data_ranks)
        first, end = (
            items * rank // self.data_ranks for rank in (self.data_rank, self.data_rank + 1)
        )
        mine = torch.arange(first, end)
        return [mine[first : first + at_once] for first in range(0, largest_share, at_once)]

    @property
    def random_stream(self) -> int:
        """The number of the random stream. Parts of one layer share it, so that dropout agrees."""
        return self.stage * self.data_ranks + self.data_rank

    @property
    def is_first_of_stage(self) -> bool:
        """Whether this rank represents its stage."""
        return self.data_rank == self.tensor_rank == 0

    @property
    def is_counted(self) -> bool:
        """Whether this rank represents all ranks that have the same images."""
        return self.stage == self.tensor_rank == 0

    @property
    def ranks_with_loss(self) -> int:
        """The number of ranks of the last stage, over which the loss is averaged."""
        return self.data_ranks * self.tensor_ranks


def rank_coordinates(options: ParallelOptions, world: World) -> RankCoordinates:
    """Return the coordinates of this rank.

    Raises:
        LaunchInvalid: the options do not fit the number of ranks, or each other.
    """
    coordinates = RankCoordinates.of_rank(
        world.rank,
        world.size,
        stages=options.pipeline_parallel,
        tensor_ranks=options.tensor_parallel,
    )
    batch, passes, data_ranks = options.batch_size, options.accumulate, coordinates.data_ranks
    tensor_ranks, microbatches = coordinates.tensor_ranks, options.microbatches
    reason = None
    if batch < data_ranks * passes:
        reason = (
            f"--batch-size {batch} is less than one image for each of {data_ranks} ranks and "
            f"{passes} passes: it is the global batch"
        )
    elif tensor_ranks > 1 and data_ranks > 1 and options.parallel != "fsdp":
        reason = (
            f"--tensor-parallel {tensor_ranks} on {world.size} ranks leaves {data_ranks} copies of "
            "the model, which torch's DDP cannot keep alike where layers are split: add --parallel "
            "fsdp"
        )
    elif coordinates.stages == 1:
        return coordinates
    elif passes > 1:
        reason = "a pipeline adds up its microbatches: give --microbatches instead of --accumulate"
    elif options.compile is not None:
        reason = "--compile does not work with --pipeline-parallel: leave one out"
    elif microbatches < coordinates.stages:
        reason = (
            f"--microbatches {microbatches} keep {coordinates.stages} stages waiting: give as many "
            "or more"
        )
    elif batch % (data_ranks * microbatches):
        reason = (
            f"--batch-size {batch} does not divide into {data_ranks} ranks times {microbatches} "
            "--microbatches: stages exchange one shape only"
        )
    if reason is not None:
        raise LaunchInvalid(reason)
    return coordinates


def device_mesh(coordinates: RankCoordinates, world: World) -> DeviceMesh:
    """Create the process groups of all three coordinates.

    torch's `init_device_mesh` would give them a timeout of 30 minutes, not the world's.
    """
    from torch.distributed.device_mesh import DeviceMesh  # noqa: PLC0415  # slow to import

    ranks = torch.arange(world.size).view(
        coordinates.stages, coordinates.data_ranks, coordinates.tensor_ranks
    )
    groups: list[dist.ProcessGroup] = []
    for dimension in range(ranks.ndim):
        rows = ranks.movedim(dimension, -1).reshape(-1, ranks.shape[dimension])
        group, _ = dist.new_subgroups_by_enumeration(rows.tolist(), timeout=world.timeout)
        groups.append(cast("dist.ProcessGroup", group))  # not None: each rank is in one
    return DeviceMesh.from_group(
        groups, world.device.type, mesh=ranks, mesh_dim_names=(PIPELINE, DATA, TENSOR)
    )
