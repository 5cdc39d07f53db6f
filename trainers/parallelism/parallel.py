"""How a network is spread over the ranks, and what makes it lighter or faster on each of them.

| option | each rank holds | known as |
|---|---|---|
| --parallel ddp | everything; gradients are averaged | DDP |
| --parallel fsdp | a part of parameters, gradients, optimizer; gathers a block at a time | ZeRO-3 |
| --parallel fsdp --keep-gathered | the same, but gathers a block once a step, not twice | ZeRO-2 |
| --deepspeed FILE | everything, or with ZeRO-1 and 2 a part of the optimizer | DeepSpeed |
| --tensor-parallel N | a part of each layer that the model's plan names | Megatron |
| --pipeline-parallel N | a part of the layers, see `trainers.parallelism.pipeline` | GPipe, 1F1B |

The last two combine with each other and with --parallel, which is then about the ranks that are
left: see `trainers.parallelism.mesh`. Sources: docs.pytorch.org, DistributedDataParallel,
torch.distributed.fsdp.fully_shard (its `reshard_after_forward` is the choice between its rows),
torch.distributed.tensor.parallel, torch.utils.checkpoint; Rajbhandari et al., arXiv 1910.02054
(ZeRO); Shoeybi et al., arXiv 1909.08053 (Megatron).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint

from trainers.detection.network import is_detector
from trainers.errors import LaunchInvalid
from trainers.parallelism.deepspeed_config import deepspeed_config
from trainers.parallelism.deepspeed_engine import DeepSpeedEngine
from trainers.parallelism.mesh import DATA, PIPELINE, TENSOR, device_mesh, place_of
from trainers.parallelism.pipeline import InTurn, LossOf, Pipeline, Stage, gather_stages, keep_stage
from trainers.parallelism.world import World
from trainers.settings import Settings

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.parallel import ParallelStyle


class Parallel:
    """A network made ready for training on all ranks. The optimizer has to come after it.

    Attributes:
        place: where this rank stands.
        network: the network itself, whose names are those of the checkpoint and of the model; less
            what is of other stages.
        module: what is called in training.
        evaluated: what is called to evaluate, by all ranks together; whole even in a pipeline.
        is_whole: whether this rank holds each of its parameters whole, as a plain tensor.
        has_mixed_tensors: whether some parameters are torch's DTensors and others are not.

    Raises:
        LaunchInvalid: the network cannot be spread like this.
    """

    def __init__(self, network: nn.Module, settings: Settings, world: World) -> None:
        self.place = place = place_of(settings, world)
        self._world = world
        self._precision = settings.precision
        self._computes_own_loss = is_detector(network)
        self._memory_format = memory_format(network, settings, world.device)
        self._sharded = settings.parallel == "fsdp" and place.data_ranks > 1
        self.has_mixed_tensors = place.tensor_ranks > 1
        self._deepspeed_config = deepspeed_config(settings, world.size)
        self.is_whole = not (
            self._sharded or self.has_mixed_tensors or self._deepspeed_config is not None
        )
        self._deepspeed: DeepSpeedEngine | None = None
        self._mesh = None
        if self._sharded or place.stages > 1 or place.tensor_ranks > 1:
            self._mesh = device_mesh(place, world)
        self.network = network
        self.evaluated = self._cut(settings)
        if settings.checkpoint_activations:
            for block in blocks(network):
                block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
        self._place(keep_gathered=settings.keep_gathered)
        self.module = self._called(settings)
        self._pipeline = None
        if place.stages > 1:
            group = self._mesh_of(PIPELINE).get_group()
            self._pipeline = Pipeline(
                self.module,
                schedule=settings.pipeline_schedule,
                microbatches=settings.microbatches,
                device=world.device,
                group=group,
            )
            self.evaluated = InTurn(self.evaluated, group)

    def _cut(self, settings: Settings) -> nn.Module:
        """Leave this rank its part of the layers, and return what calls them."""
        place, device = self.place, self._world.device
        if place.tensor_ranks > 1:
            _split_layers(self.network, self._mesh_of(TENSOR))
        core = self.network
        if place.stages > 1:
            parts = keep_stage(self.network, place.stage, place.stages)
            core = Stage(parts, precision=settings.precision, device=device)
        if place.data_ranks > 1 and device.type == "cuda":
            core = nn.SyncBatchNorm.convert_sync_batchnorm(core, self._data_group)
        return core

    def _place(self, *, keep_gathered: bool) -> None:
        """Bring this rank's part to its device, in shards if that is how it is kept.

        Shards come first: the device may be too small for all of it.
        """
        if self._sharded:
            parts = [*blocks(self.network), self.evaluated]
            shard(parts, self._mesh_of(DATA), keep_gathered=keep_gathered)
        # Parts are of contiguous parameters.
        layout = self._memory_format if self._mesh is None else torch.preserve_format
        # torch's annotation of `to` lacks the call with a memory format.
        to = cast("Callable[..., nn.Module]", self.network.to)
        to(self._world.device, memory_format=layout)

    def _called(self, settings: Settings) -> nn.Module:
        """Compiled if so told; with ranks that hold the same, gradients are averaged over them."""
        module, device = self.evaluated, self._world.device
        if settings.compile is not None:
            module = cast("nn.Module", torch.compile(module, backend=settings.compile))
        if self.place.data_ranks > 1 and not self._sharded and self._deepspeed_config is None:
            module = DistributedDataParallel(
                module,
                device_ids=[device] if device.type == "cuda" else None,
                process_group=self._data_group,
            )
        return module

    def take_over(self, optimizer: Optimizer) -> None:
        """With --deepspeed, give its engine network and optimizer, as they are after a resume."""
        if self._deepspeed_config is not None:
            self._deepspeed = DeepSpeedEngine(self.network, optimizer, self._deepspeed_config)
            self.module = self._deepspeed.module

    def step(self, optimizer: Optimizer) -> None:
        """Change the weights by the gradients."""
        if self._deepspeed is not None:
            self._deepspeed.module.step()
        else:
            optimizer.step()

    @property
    def has_flat_optimizer(self) -> bool:
        """Whether the optimizer's state is not by parameter, so that `saved_optimizer` gathers."""
        return self._deepspeed is not None and self._deepspeed.is_partitioned

    def saved_optimizer(self, optimizer: Optimizer) -> Optimizer:
        """One whose state is by parameter, for a checkpoint. All ranks do it together."""
        return optimizer if self._deepspeed is None else self._deepspeed.whole_optimizer()

    def forward_backward(
        self, images: Tensor, labels: Any, loss_of: LossOf, *, last: bool
    ) -> Tensor:
        """A forward and a backward pass; gradients are averaged over the ranks that have data.

        Args:
            images: this rank's share, shape (B, C, H, W).
            labels: theirs, shape (B,), or what else the loss takes.
            loss_of: from the network's answer and labels, of all or of a part of the images, to
                what they add to the loss.
            last: the last pass of this batch. Ranks exchange gradients then; before, they add up.

        Returns:
            The loss, without gradients. In a pipeline the last stage has it, the others have 0.
        """
        images = images.to(memory_format=self._memory_format)
        if self._pipeline is not None:
            return self._pipeline.forward_backward(images, labels, loss_of)
        if self._deepspeed is not None:
            loss = loss_of(self._answer(images, labels), labels)
            self._deepspeed.backward(loss, last=last)
            return loss.detach()
        with self._exchange(last=last):
            loss = loss_of(self._answer(images, labels), labels)
            loss.backward()
        return loss.detach()

    def _answer(self, images: Tensor, labels: Any) -> Any:
        """Logits in 32 bits or more; or the losses, if the network computes them itself."""
        arguments = (images, labels) if self._computes_own_loss else (images,)
        with torch.autocast(
            self._world.device.type, torch.bfloat16, enabled=self._precision == "bf16"
        ):
            answer = self.module(*arguments)
        if isinstance(answer, Tensor) and answer.dtype is torch.bfloat16:
            return answer.float()
        return answer

    @contextlib.contextmanager
    def _exchange(self, *, last: bool) -> Generator[None]:
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
        are added up. So a resumed run rounds alike. A pipeline learns the shapes that its stages
        exchange. Running statistics are left as they were.
        """
        if not isinstance(self.module, DistributedDataParallel) and self._pipeline is None:
            return
        before = [buffer.clone() for buffer in self.network.buffers()]
        unused_pass()
        for buffer, value in zip(self.network.buffers(), before, strict=True):
            buffer.copy_(value)

    def unify_buffers(self) -> None:
        """One rank's running statistics on all: each has those of its own share of the images."""
        if self.place.data_ranks > 1:
            for buffer in self.network.buffers():
                dist.broadcast(buffer, group=self._data_group, group_src=0)

    def whole_state(self) -> dict[str, Tensor]:
        """The state dict in plain tensors in the CPU's memory of rank 0; empty on other ranks.

        No device needs room for more than one whole tensor.
        """
        self.unify_buffers()
        state = self.network.state_dict()
        whole: dict[str, Tensor] = {}
        for name, tensor in state.items():
            # All ranks that hold a part of it take part.
            full = (
                cast("_Parted", tensor).full_tensor() if hasattr(tensor, "full_tensor") else tensor
            )
            if self.place.is_first_of_stage:
                whole[name] = full.cpu()
        if self._pipeline is not None and self.place.is_first_of_stage:
            group = self._mesh_of(PIPELINE).get_group()
            whole = gather_stages(whole, group, self._world.device)
        return whole if self._world.is_first else {}

    def _mesh_of(self, dimension: str) -> DeviceMesh:
        assert self._mesh is not None
        return self._mesh[dimension]

    @property
    def _data_group(self) -> dist.ProcessGroup | None:
        """The ranks that have other images and the same layers; None for all."""
        return None if self._mesh is None else self._mesh_of(DATA).get_group()


def memory_format(
    network: nn.Module, settings: Settings, device: torch.device
) -> torch.memory_format:
    """Channels last if asked for, or if it is what torch advises for the network on the device.

    Tensor cores take convolutions in this format. CUDA's group normalisation does not: it would
    copy its features to the other format and back at each layer. Source: docs.pytorch.org,
    "Channels Last Memory Format in PyTorch".
    """
    asked_for = settings.channels_last
    if asked_for is None:
        kinds = [type(module) for module in network.modules()]
        is_advised = nn.Conv2d in kinds and nn.GroupNorm not in kinds
        asked_for = device.type == "cuda" and is_advised
    return torch.channels_last if asked_for else torch.preserve_format


class _Parted(Protocol):
    def full_tensor(self) -> Tensor: ...


class _HasPlan(Protocol):
    def tensor_parallel_plan(self, ranks: int) -> dict[str, ParallelStyle]: ...


class _Blocks(Protocol):
    def blocks(self) -> Sequence[nn.Module]: ...


class _Sharded(Protocol):
    def set_requires_gradient_sync(self, requires_gradient_sync: bool) -> None: ...  # noqa: FBT001  # torch's


def blocks(network: nn.Module) -> Sequence[nn.Module]:
    """The repeated parts of a network that have parameters: what it says, or else its children."""
    listed = cast("_Blocks", network).blocks() if hasattr(network, "blocks") else network.children()
    return [block for block in listed if next(block.parameters(), None) is not None]


def _split_layers(network: nn.Module, mesh: DeviceMesh) -> None:
    from torch.distributed.tensor.parallel import parallelize_module  # noqa: PLC0415  # slow to import

    if not hasattr(network, "tensor_parallel_plan"):
        raise LaunchInvalid(
            f"{type(network).__name__} cannot be split: it has no tensor_parallel_plan(ranks), "
            "a plan for torch's parallelize_module"
        )
    parallelize_module(network, mesh, cast("_HasPlan", network).tensor_parallel_plan(mesh.size()))


def shard(parts: Sequence[nn.Module], mesh: DeviceMesh, *, keep_gathered: bool) -> None:
    """Spread each part's parameters over the ranks of `mesh`; see `--parallel fsdp`."""
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415  # slow to import

    for part in parts:
        fully_shard(part, mesh=mesh, reshard_after_forward=not keep_gathered)
