"""Out of memory: what to lower, with this run's values."""

from __future__ import annotations

import re
import resource
import sys

import torch

from trainers.errors import OutOfMemory
from trainers.parallelism.mesh import place_of
from trainers.parallelism.world import World
from trainers.settings import Settings

# CPU allocators raise a plain RuntimeError, which only its text tells from others.
_CPU_ALLOCATOR = re.compile("DefaultCPUAllocator: (can't allocate|not enough) memory")


def peak_bytes(device: torch.device) -> int:
    """The most memory that this rank has had: of its GPU's, tensors only; on a CPU, the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # getrusage(2): in bytes on macOS, in KiB elsewhere.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device, the CPU's allocator or Python itself had no memory to give."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and _CPU_ALLOCATOR.search(str(error)) is not None


def out_of_memory(error: BaseException, settings: Settings, world: World) -> OutOfMemory:
    """The error that says what to do: what keeps the result comes first, what does not last."""
    on_device = -(-settings.batch_size // place_of(settings, world).data_ranks)
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
