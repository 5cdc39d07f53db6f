"""Convert exceptions to typed failures, error.json and exit codes."""

from __future__ import annotations

import re
import traceback

import torch

from trainers.errors import LaunchInvalid, OutOfMemory, PeerFailed, TrainingError
from trainers.parallelism.mesh import rank_coordinates
from trainers.parallelism.world import World, is_loss_of_peer
from trainers.reports.error_file import write_failure
from trainers.settings import Settings

# torch raises a plain RuntimeError for these, so only the text distinguishes them: failures of the
# CPU's allocator, of CUDA's allocations on host and device, and of CUDA's libraries.
_ALLOCATION_FAILED = re.compile(
    "DefaultCPUAllocator: (can't allocate|not enough) memory"
    "|CUDA error: out of memory|CU(BLAS|DNN|SOLVER)_STATUS_ALLOC_FAILED"
)
# The same, for a kernel without a deterministic form and cuBLAS without a fixed workspace.
_NOT_DETERMINISTIC = re.compile(
    r"^(?P<kernel>\S+) does not have a deterministic implementation|uses CuBLAS and you have CUDA"
)


def report_failure(error: Exception, settings: Settings, world: World | None) -> int:
    """Write a failure to stderr and to error.json; return the exit code of the process."""
    if not isinstance(error, TrainingError):
        traceback.print_exception(error)
    return write_failure(settings.output_dir, typed_failure(error, settings, world))


def typed_failure(error: Exception, settings: Settings, world: World | None) -> Exception:
    """Return the typed failure for an exception of torch; `error` itself if there is none.

    The message names the options to change. `world` is None if the ranks could not connect.
    """
    if isinstance(error, TrainingError):
        return error
    text = str(error) if isinstance(error, RuntimeError) else ""
    is_memory = isinstance(error, torch.OutOfMemoryError | MemoryError)
    if world is not None and (is_memory or _ALLOCATION_FAILED.search(text)):
        return _out_of_memory(error, settings, world)
    if refused := _NOT_DETERMINISTIC.search(text):
        return LaunchInvalid(
            f"{refused['kernel'] or 'cuBLAS'} has no deterministic form on this device, and "
            f"deterministic kernels are required: replace what uses it in {settings.model} "
            "(torch.use_deterministic_algorithms lists such operations and what to use instead), "
            "or train on a GPU without --deterministic"
        )
    if is_loss_of_peer(error):
        return PeerFailed(
            "another rank died or did not answer in time: its own log has the cause. Start again "
            "to go on from the last checkpoint"
        )
    return error


def _out_of_memory(error: Exception, settings: Settings, world: World) -> OutOfMemory:
    """Return the error with advice. Options that keep the result come first."""
    on_device = -(-settings.batch_size // rank_coordinates(settings, world).data_ranks)
    at_once = -(-on_device // settings.accumulate)
    size = settings.image_size
    helps = {
        f"raise --accumulate (now {settings.accumulate}: {at_once} images of {size} x {size} at "
        f"once on each of {world.size})": at_once > 1,
        "add --checkpoint-activations full": not settings.checkpoint_activations,
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
