"""Peak memory, and the error of a run without enough of it."""

from __future__ import annotations

import re
import resource
import sys

import torch

from trainers.errors import OutOfMemory
from trainers.parallelism.mesh import rank_coordinates
from trainers.parallelism.world import World
from trainers.settings import Settings

# The CPU allocator, CUDA's host and context allocations, and its libraries raise a plain
# RuntimeError; only its text distinguishes it.
_ALLOCATION_FAILED = re.compile(
    "DefaultCPUAllocator: (can't allocate|not enough) memory"
    "|CUDA error: out of memory|CU(BLAS|DNN|SOLVER)_STATUS_ALLOC_FAILED"
)


def peak_bytes(device: torch.device) -> int:
    """The largest memory of this rank: of tensors on its GPU, or of the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # getrusage(2): in bytes on macOS, in KiB elsewhere.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed: on a device, in the CPU's allocator or in Python."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and _ALLOCATION_FAILED.search(str(error)) is not None


def out_of_memory(error: BaseException, settings: Settings, world: World) -> OutOfMemory:
    """The error with advice. Options that keep the result come first, those that change it last."""
    on_device = -(-settings.batch_size // rank_coordinates(settings, world).data_ranks)
    at_once = -(-on_device // settings.accumulate)
    advice: list[str] = []
    if at_once > 1:
        advice.append(
            f"raise --accumulate (now {settings.accumulate}: {at_once} images of "
            f"{settings.image_size} x {settings.image_size} at once on each of {world.size})"
        )
    if not settings.checkpoint_activations:
        advice.append(
            "add --checkpoint-activations (computes blocks twice instead of keeping them)"
        )
    if settings.parallel == "ddp":
        advice.append("use --parallel fsdp on several devices (now ddp: each one holds everything)")
    elif settings.keep_gathered:
        advice.append("drop --keep-gathered")
    if settings.precision != "bf16":
        advice.append(f"use --precision bf16 (now {settings.precision})")
    advice.append(
        f"lower --batch-size (now {settings.batch_size}, over all devices) or --image-size (now "
        f"{settings.image_size}), which changes what is learned"
    )
    cause = (str(error) or type(error).__name__).splitlines()[0]
    return OutOfMemory(
        f"rank {world.rank} ran out of memory on {world.device}: {cause}. To need less: "
        + "; ".join(advice)
    )
