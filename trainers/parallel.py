"""How a network is spread over the ranks, and what makes it lighter or faster on each of them.

| --parallel | each rank holds | equivalent |
|---|---|---|
| ddp | everything; gradients are averaged | |
| fsdp | a part of parameters, gradients and optimizer; blocks are gathered when needed | ZeRO-3 |
| fsdp --keep-gathered | the same, but blocks stay gathered from forward to backward pass | ZeRO-2 |

Sources: docs.pytorch.org, DistributedDataParallel, torch.distributed.fsdp.fully_shard (its
`reshard_after_forward` is the choice between the last two rows), torch.utils.checkpoint;
Rajbhandari et al., arXiv 1910.02054 (ZeRO).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Sequence
from typing import Protocol, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from trainers.settings import Settings
from trainers.world import World


class Parallel:
    """A network made ready for training on all ranks. The optimizer has to come after it.

    Attributes:
        network: the network itself, whose names are those of the checkpoint and of the model.
        module: what is called in training.
    """

    def __init__(self, network: nn.Module, settings: Settings, world: World) -> None:
        self._world = world
        self._precision = settings.precision
        self._memory_format = (
            torch.channels_last if settings.channels_last else torch.preserve_format
        )
        self._sharded = settings.parallel == "fsdp" and world.size > 1
        network.to(world.device)
        if settings.channels_last and not self._sharded:  # shards are of contiguous parameters
            # torch's annotation of `to` lacks the call with a memory format alone.
            cast("Callable[..., nn.Module]", network.to)(memory_format=torch.channels_last)
        if world.size > 1 and world.device.type == "cuda":
            network = nn.SyncBatchNorm.convert_sync_batchnorm(network)
        if settings.checkpoint_activations:
            for block in blocks(network):
                block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
        if self._sharded:
            _shard(network, world, keep_gathered=settings.keep_gathered)
        self.network = self.module = network
        if settings.compile is not None:
            compiled = torch.compile(network, backend=settings.compile)
            self.module = cast("nn.Module", compiled)
        if world.size > 1 and not self._sharded:
            self.module = DistributedDataParallel(
                self.module, device_ids=[world.device] if world.device.type == "cuda" else None
            )

    def logits(self, images: Tensor) -> Tensor:
        """The network's answer in 32 bits or more, whatever it computes in."""
        images = images.to(memory_format=self._memory_format)
        with torch.autocast(
            self._world.device.type, torch.bfloat16, enabled=self._precision == "bf16"
        ):
            logits: Tensor = self.module(images)
        return logits.float() if logits.dtype is torch.bfloat16 else logits

    @contextlib.contextmanager
    def backward_pass(self, *, last: bool) -> Generator[None]:
        """Ranks exchange gradients in the last pass of a batch only; the others add up."""
        if isinstance(self.module, DistributedDataParallel) and not last:
            with self.module.no_sync():
                yield
            return
        if self._sharded:
            cast("_Sharded", self.network).set_requires_gradient_sync(last)
        yield

    def settle(self, unused_pass: Callable[[], object]) -> None:
        """Have DDP group the gradients for good, by a pass whose gradients are not used.

        It regroups them after its first backward pass, and groups decide the order in which ranks
        are added up. So a resumed run rounds alike. Running statistics are left as they were.
        """
        if not isinstance(self.module, DistributedDataParallel):
            return
        before = [buffer.clone() for buffer in self.network.buffers()]
        unused_pass()
        for buffer, value in zip(self.network.buffers(), before, strict=True):
            buffer.copy_(value)

    def unify_buffers(self) -> None:
        """Rank 0's running statistics on every rank: each has those of its own share."""
        if self._world.size > 1:
            for buffer in self.network.buffers():
                dist.broadcast(buffer, src=0)

    def whole_state(self) -> dict[str, Tensor]:
        """The state dict in plain tensors in the CPU's memory of rank 0; empty on other ranks."""
        self.unify_buffers()
        if not self._sharded:
            if not self._world.is_first:
                return {}
            return {name: value.cpu() for name, value in self.network.state_dict().items()}
        from torch.distributed.checkpoint.state_dict import (  # noqa: PLC0415  # a second of import
            StateDictOptions,
            get_model_state_dict,
        )

        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        return cast("dict[str, Tensor]", get_model_state_dict(self.network, options=options))


class _Blocks(Protocol):
    def blocks(self) -> Sequence[nn.Module]: ...


class _Sharded(Protocol):
    def set_requires_gradient_sync(self, requires_gradient_sync: bool) -> None: ...  # noqa: FBT001  # torch's


def blocks(network: nn.Module) -> Sequence[nn.Module]:
    """The repeated parts of a network: what it says, or else its children with parameters."""
    if hasattr(network, "blocks"):
        return cast("_Blocks", network).blocks()
    return [child for child in network.children() if next(child.parameters(), None) is not None]


def _shard(network: nn.Module, world: World, *, keep_gathered: bool) -> None:
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415  # slow to import
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415  # the same

    mesh = init_device_mesh(world.device.type, (world.size,))
    for part in [*blocks(network), network]:
        fully_shard(part, mesh=mesh, reshard_after_forward=not keep_gathered)
