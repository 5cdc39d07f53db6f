"""Which device a rank trains on: a GPU of its own, or the CPU that it shares with its neighbours.

Ranks of one machine that see the same GPUs (the same CUDA_VISIBLE_DEVICES) take one each, in the
order of LOCAL_RANK. Ranks whose launcher shows each of them one GPU
only, as Slurm and some MPI wrappers do, take that one. A part of a GPU (MIG) counts as a GPU: a
process sees one such part at most (docs.nvidia.com, "MIG User Guide", device names).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from trainers.errors import LaunchInvalid

DeviceChoice = Literal["auto", "cuda", "cpu"]

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, kw_only=True)
class RankHardware:
    """The hardware of one rank. Ranks exchange it: not every launcher says who shares a machine."""

    host: str
    local_rank: int
    visible_devices: str | None
    """CUDA_VISIBLE_DEVICES as this rank has it."""
    gpus: int

    @classmethod
    def of_this_process(cls, local_rank: int, environment: Mapping[str, str]) -> RankHardware:
        """Read the hardware without starting CUDA in this process."""
        return cls(
            host=socket.gethostname(),
            local_rank=local_rank,
            visible_devices=environment.get(VISIBLE_DEVICES),
            gpus=torch.cuda.device_count(),
        )


def gpu_of_rank(rank: int, ranks: Sequence[RankHardware], choice: DeviceChoice) -> int | None:
    """The index of a rank's GPU among those that it sees; None for the CPU.

    Every rank computes the same assignment.

    Args:
        rank: whose device to find.
        ranks: the hardware of every rank, in order.
        choice: `auto` takes GPUs if any rank sees one, `cuda` requires them, `cpu` takes none.

    Raises:
        LaunchInvalid: some ranks have a GPU and others do not, or `cuda` is chosen and no rank has.
    """
    if choice == "cpu" or (choice == "auto" and not any(each.gpus for each in ranks)):
        return None
    indices = [_index_among_neighbours(each, ranks) for each in range(len(ranks))]
    for number, (index, mine) in enumerate(zip(indices, ranks, strict=True)):
        if index < mine.gpus:
            continue
        shown = "unset" if mine.visible_devices is None else repr(mine.visible_devices)
        if not mine.gpus:
            raise LaunchInvalid(
                f"rank {number} on {mine.host} sees no GPU ({VISIBLE_DEVICES} is {shown}): check "
                "the driver (nvidia-smi) and that torch is a CUDA build, or give --device cpu to "
                "train on CPUs"
            )
        raise LaunchInvalid(
            f"{mine.host} has {sum(each.host == mine.host for each in ranks)} ranks and "
            f"{mine.gpus} GPUs that rank {number} can see ({VISIBLE_DEVICES} is {shown}): start "
            f"one rank for each GPU (torchrun --nproc-per-node {mine.gpus}, Azure ML "
            f"process_count_per_instance: {mine.gpus}), or give --device cpu to train on CPUs"
        )
    return indices[rank]


def _index_among_neighbours(rank: int, ranks: Sequence[RankHardware]) -> int:
    """How many ranks come before this one among those that choose from the same GPUs."""
    mine = ranks[rank]
    neighbours = [
        (each.local_rank, number)
        for number, each in enumerate(ranks)
        if each.host == mine.host and each.visible_devices == mine.visible_devices
    ]
    return sorted(neighbours).index((mine.local_rank, rank))


def use_device(gpu: int | None, *, neighbours: int, environment: Mapping[str, str]) -> torch.device:
    """Make the device current in this process and thread.

    Args:
        gpu: from `gpu_of_rank`.
        neighbours: ranks on this machine, this one included. On the CPU they share its cores,
            unless OMP_NUM_THREADS is set.
        environment: of this process.
    """
    if gpu is not None:
        device = torch.device("cuda", gpu)
        torch.cuda.set_device(device)
        return device
    if "OMP_NUM_THREADS" not in environment:
        torch.set_num_threads(max(1, _usable_cores() // neighbours))
    return torch.device("cpu")


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
