"""The device of a rank, and its kernels.

The device is a GPU of its own, or the CPU, which the ranks of a machine share.

Ranks of one machine that see the same GPUs (the same CUDA_VISIBLE_DEVICES) take one each, in the
order of LOCAL_RANK. If the launcher shows each rank only one GPU, as Slurm and some MPI wrappers
do, the rank takes that GPU. A part of a GPU (MIG) counts as a GPU: a process sees at most one such
part (docs.nvidia.com, "MIG User Guide", device names).

| option | on CUDA | on a CPU |
|---|---|---|
| (default) | cuDNN chooses its fastest kernels; atomics add in any order | deterministic |
| --deterministic | deterministic kernels only; cuBLAS gets a fixed workspace | the same |
| --precision fp32 | products of 32-bit numbers are exact | the same |
| --precision tf32 | 10 bits of mantissa on tensor cores; sums and parameters keep 32 | as fp32 |
| --precision bf16 | autocast, and tf32 for the remaining 32-bit operations | autocast |

Sources: docs.pytorch.org, "Reproducibility", "torch.use_deterministic_algorithms", "CUDA semantics"
(TensorFloat-32); docs.nvidia.com, cuBLAS, "Results reproducibility".
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from trainers.errors import LaunchInvalid
from trainers.parallelism.options import DeviceChoice, ParallelOptions

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
CUBLAS_VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
# cuBLAS documents these two as reproducible. The first takes 24 MiB of device memory; the second
# takes 8 KiB and may be slower.
REPEATABLE_WORKSPACES = (":4096:8", ":16:8")
_FLIGHT_RECORDER = (
    *("TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE"),
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
)


@dataclass(frozen=True, kw_only=True)
class RankHardware:
    """The hardware of a rank. Ranks exchange it: not all launchers say which share a machine."""

    host: str
    local_rank: int
    visible_devices: str | None  # this rank's CUDA_VISIBLE_DEVICES
    gpus: int


def gpu_of_rank(rank: int, ranks: Sequence[RankHardware], choice: DeviceChoice) -> int | None:
    """Return the index of a rank's GPU among those that it sees; None for the CPU.

    Every rank computes the same assignment from the hardware of all ranks. `auto` takes GPUs if any
    rank sees one, `cuda` requires them, `cpu` takes none.

    Raises:
        LaunchInvalid: only some ranks have a GPU, or none has and `choice` is `cuda`.
    """
    if choice == "cpu" or (choice == "auto" and not any(each.gpus for each in ranks)):
        return None
    indices: list[int] = []
    for number, mine in enumerate(ranks):
        # The ranks that choose from the same GPUs, in the order of LOCAL_RANK.
        rivals = [
            (each.local_rank, other)
            for other, each in enumerate(ranks)
            if (each.host, each.visible_devices) == (mine.host, mine.visible_devices)
        ]
        indices.append(sorted(rivals).index((mine.local_rank, number)))
        if indices[-1] < mine.gpus:
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


def use_device(gpu: int | None, *, neighbours: int, environment: Mapping[str, str]) -> torch.device:
    """Make the device the current one; `gpu` is from `gpu_of_rank`.

    On the CPU, the number of threads is set to this rank's part of the cores, unless
    OMP_NUM_THREADS is set. `neighbours` is the number of ranks on this machine.
    """
    if gpu is not None:
        device = torch.device("cuda", gpu)
        torch.cuda.set_device(device)
        return device
    if "OMP_NUM_THREADS" not in environment:
        has_affinity = hasattr(os, "sched_getaffinity")  # macOS lacks it
        cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
        torch.set_num_threads(max(1, cores // neighbours))
    return torch.device("cpu")


def thread_of(device: torch.device, name: str) -> ThreadPoolExecutor:
    """Return a thread whose current device is `device`.

    A new thread's is GPU 0: there, each rank that pins memory or waits for its GPU would open a
    context of some hundred MB.
    """
    if device.type != "cuda":
        return ThreadPoolExecutor(1, name)
    return ThreadPoolExecutor(1, name, torch.cuda.set_device, (device,))


def prepare_environment(options: ParallelOptions, environment: MutableMapping[str, str]) -> None:
    """Set the variables that CUDA reads when it is initialized in this process.

    Raises:
        LaunchInvalid: the environment contradicts `--deterministic`.
    """
    if not options.deterministic:
        return
    workspace = environment.setdefault(CUBLAS_VARIABLE, REPEATABLE_WORKSPACES[0])
    if workspace not in REPEATABLE_WORKSPACES:
        raise LaunchInvalid(
            f"{CUBLAS_VARIABLE}={workspace} is not repeatable, but --deterministic is given: "
            f"unset it, or set it to one of {', '.join(REPEATABLE_WORKSPACES)}"
        )


def record_collectives(output: Path, environment: MutableMapping[str, str]) -> str:
    """Have torch write NCCL's last collectives to `output` when it ends a rank; return a log line.

    It records 2,000 of them (TORCH_FR_BUFFER_SIZE). Call it before the process group is made. What
    is set stays, also by the file's older name. Sources: docs.pytorch.org, "PYTORCH
    ProcessGroupNCCL Environment Variables", "Flight Recorder".
    """
    environment.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")
    if "TORCH_NCCL_DEBUG_INFO_TEMP_FILE" not in environment:
        prefix = str(output.absolute() / "collectives-rank-")
        environment.setdefault("TORCH_FR_DUMP_TEMP_FILE", prefix)
    told = (f"{name}={environment[name]}" for name in _FLIGHT_RECORDER if name in environment)
    return f"NCCL's flight recorder: {' '.join(told)}"


def choose_kernels(options: ParallelOptions, device: torch.device) -> None:
    """Configure torch's kernels in this process, for `device`.

    Raises:
        LaunchInvalid: the device does not support the `--precision`.
    """
    on_cuda = device.type == "cuda"
    is_deterministic = options.deterministic or not on_cuda
    torch.use_deterministic_algorithms(is_deterministic)
    # torch would fill each new tensor with a value that shows where memory is read before a write.
    cast(
        "Any", torch.utils.deterministic
    ).fill_uninitialized_memory = False  # torch's types lack it
    if not on_cuda:
        return
    torch.backends.cudnn.benchmark = not is_deterministic
    torch.backends.cudnn.deterministic = is_deterministic
    uses_tf32 = options.precision != "fp32"
    torch.backends.cudnn.allow_tf32 = uses_tf32
    torch.set_float32_matmul_precision("high" if uses_tf32 else "highest")
    if options.precision == "bf16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise LaunchInvalid(
            f"{torch.cuda.get_device_name(device)} has no bfloat16 arithmetic, but --precision "
            "bf16 is given: use --precision tf32, or a GPU of compute capability 8.0 or newer "
            "(A100, L4, H100)"
        )
