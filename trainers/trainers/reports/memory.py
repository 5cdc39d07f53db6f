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
    size = settings.image_size
    helps = {
        f"raise --accumulate (now {settings.accumulate}: {at_once} images of {size} x {size} at "
        f"once on each of {world.size})": at_once > 1,
        "add --checkpoint-activations": not settings.checkpoint_activations,
        "use --parallel fsdp on several devices": settings.parallel == "ddp",
        "drop --keep-gathered": settings.keep_gathered,
        f"use --precision bf16 (now {settings.precision})": settings.precision != "bf16",
        f"lower --batch-size (now {settings.batch_size}, over all devices) or --image-size (now "
        f"{size}), which changes what is learned": True,
    }
    cause = (str(error) or type(error).__name__).splitlines()[0]
    return OutOfMemory(
        f"rank {world.rank} ran out of memory on {world.device}: {cause}. To need less: "
        + "; ".join(advice for advice, does_help in helps.items() if does_help)
    )
