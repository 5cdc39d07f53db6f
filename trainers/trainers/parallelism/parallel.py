"""The distribution of a network over the ranks.

| option | each rank holds | known as |
|---|---|---|
| --parallel ddp | everything; gradients are averaged | DDP |
| --parallel fsdp | a part of parameters, gradients, optimizer; gathers block by block | ZeRO-3 |
| --parallel fsdp --keep-gathered | the same; gathers a block once per step, not twice | ZeRO-2 |
| --deepspeed FILE | everything, or with ZeRO-1 and 2 a part of the optimizer | DeepSpeed |
| --tensor-parallel N | a part of each layer that the model's plan names | Megatron |
| --pipeline-parallel N | a part of the layers, see `trainers.parallelism.pipeline` | GPipe, 1F1B |

The last two combine with each other and with --parallel, which then applies to the data ranks: see
`trainers.parallelism.mesh`. Sources: docs.pytorch.org, DistributedDataParallel,
torch.distributed.fsdp.fully_shard (`reshard_after_forward` is the difference of its two rows),
torch.distributed.tensor.parallel, torch.utils.checkpoint; Rajbhandari et al., arXiv 1910.02054
(ZeRO); Shoeybi et al., arXiv 1909.08053 (Megatron).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint

from trainers.errors import LaunchInvalid
from trainers.parallelism.deepspeed import DeepSpeedEngine, deepspeed_config
from trainers.parallelism.mesh import DATA, PIPELINE, TENSOR, device_mesh, rank_coordinates
from trainers.parallelism.options import ParallelOptions
from trainers.parallelism.pipeline import (
    LossOf,
    Pipeline,
    SequentialStages,
    Stage,
    gather_stages,
    keep_stage,
)
from trainers.parallelism.world import World

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


_IMAGE_DIMENSIONS = 4


class Parallel:
    """A network distributed over all ranks, and its loss. Create the optimizer after it.

    Attributes:
        network: the network itself, with the parameter names of checkpoint and model, without the
            layers of other stages.
        module: the module to call in training.
        evaluated: the module to call in evaluation, on all ranks; it runs all pipeline stages.
        is_whole: whether each parameter of this rank is a plain, whole tensor.
        has_mixed_tensors: whether only some of the parameters are DTensors.

    Raises:
        LaunchInvalid: the options cannot be applied to this network.
    """

    def __init__(
        self, network: nn.Module, loss_of: LossOf, options: ParallelOptions, world: World
    ) -> None:
        self.coordinates = coordinates = rank_coordinates(options, world)
        self._world = world
        self._loss_of = loss_of
        self._precision = options.precision
        self._memory_format = memory_format(network, options, world.device)
        self._sharded = options.parallel == "fsdp" and coordinates.data_ranks > 1
        self.has_mixed_tensors = coordinates.tensor_ranks > 1
        self._deepspeed_config = deepspeed_config(options, world.size)
        self._deepspeed: DeepSpeedEngine | None = None
        is_split = self._sharded or self.has_mixed_tensors
        self.is_whole = not is_split and self._deepspeed_config is None
        has_stages = coordinates.stages > 1
        self._mesh = device_mesh(coordinates, world) if is_split or has_stages else None
        self.network = network
        self.evaluated = self._cut(options)
        if options.checkpoint_activations:
            for block in blocks(network):
                block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
        if self._sharded:  # before the move to the device, which may be too small for the whole
            parts = [*blocks(network), self.evaluated]
            shard(parts, self._mesh_of(DATA), keep_gathered=options.keep_gathered)
        # Shards and split layers need contiguous parameters.
        layout = self._memory_format if self._mesh is None else torch.preserve_format
        # torch's type of `to` lacks the call with a memory format.
        cast("Any", network).to(world.device, memory_format=layout)
        self.module = self._called(options)
        self._pipeline = None
        if has_stages:
            group = self._mesh_of(PIPELINE).get_group()
            self._pipeline = Pipeline(
                self.module,
                schedule=options.pipeline_schedule,
                microbatches=options.microbatches,
                device=world.device,
                group=group,
                loss_of=loss_of,
            )
            self.evaluated = SequentialStages(self.evaluated, group)

    def _cut(self, options: ParallelOptions) -> nn.Module:
        """Keep this rank's part of the layers; return the module that calls them."""
        coordinates, device = self.coordinates, self._world.device
        if coordinates.tensor_ranks > 1:
            _split_layers(self.network, self._mesh_of(TENSOR))
        core = self.network
        if coordinates.stages > 1:
            parts = keep_stage(self.network, coordinates.stage, coordinates.stages)
            core = Stage(parts, precision=options.precision, device=device)
        if coordinates.data_ranks > 1 and device.type == "cuda":
            core = nn.SyncBatchNorm.convert_sync_batchnorm(core, self._data_group)
        return core

    def _called(self, options: ParallelOptions) -> nn.Module:
        """The module for training: compiled with --compile, in DDP if ranks share weights."""
        module, device = self.evaluated, self._world.device
        if options.compile is not None:
            module = cast("nn.Module", torch.compile(module, backend=options.compile))
        is_alone = options.average_every is not None or self.coordinates.data_ranks == 1
        if not is_alone and not self._sharded and self._deepspeed_config is None:
            module = DistributedDataParallel(
                module,
                device_ids=[device] if device.type == "cuda" else None,
                process_group=self._data_group,
            )
        return module

    def start_engine(self, optimizer: Optimizer) -> None:
        """Start the engine of --deepspeed, if given. Call it after the load of a checkpoint."""
        if self._deepspeed_config is not None:
            self._deepspeed = DeepSpeedEngine(self.network, optimizer, self._deepspeed_config)
            self.module = self._deepspeed.module

    def step(self, optimizer: Optimizer) -> None:
        """Update the weights."""
        (optimizer if self._deepspeed is None else self._deepspeed.module).step()

    def saved_optimizer(self, optimizer: Optimizer) -> Optimizer:
        """An optimizer with the state by parameter, for a checkpoint. A collective call."""
        return optimizer if self._deepspeed is None else self._deepspeed.whole_optimizer()

    def forward_backward(self, arguments: Sequence[Any], targets: Any, *, last: bool) -> Tensor:
        """Do a forward and a backward pass; gradients are averaged over the data ranks.

        The network's first argument is this rank's share of the batch's inputs. Ranks exchange
        gradients in the `last` pass of a batch only. Returns the loss, detached; it is 0 on all
        pipeline stages but the last.
        """
        inputs, *further = arguments
        if self._memory_format is torch.channels_last and inputs.ndim == _IMAGE_DIMENSIONS:
            inputs = inputs.to(memory_format=torch.channels_last)
        if self._pipeline is not None:
            return self._pipeline.forward_backward(inputs, targets)
        if self._deepspeed is not None:
            loss = self._loss_of(self._output(inputs, *further), targets)
            self._deepspeed.backward(loss, last=last)
            return loss.detach()
        if self._sharded:
            cast("Any", self.network).set_requires_gradient_sync(last)
        waits = isinstance(self.module, DistributedDataParallel) and not last
        with cast("Any", self.module).no_sync() if waits else contextlib.nullcontext():
            loss = self._loss_of(self._output(inputs, *further), targets)
            loss.backward()
        return loss.detach()

    def _output(self, *arguments: Any) -> Any:
        """Call the network; return its output, with bfloat16 converted to 32 bits."""
        uses_bf16 = self._precision == "bf16"
        with torch.autocast(self._world.device.type, torch.bfloat16, enabled=uses_bf16):
            output = self.module(*arguments)
        is_short = isinstance(output, Tensor) and output.dtype is torch.bfloat16
        return output.float() if is_short else output

    def prepare_exchange(self, unused_pass: Callable[[], object]) -> None:
        """Run a pass and discard its gradients, so that a resumed run rounds like the first start.

        DDP rebuilds its gradient buckets after its first backward pass, and the buckets determine
        the order of the sums over the ranks. A pipeline infers the shapes that its stages
        exchange. Running statistics are restored.
        """
        if not isinstance(self.module, DistributedDataParallel) and self._pipeline is None:
            return
        before = [buffer.clone() for buffer in self.network.buffers()]
        unused_pass()
        for buffer, value in zip(self.network.buffers(), before, strict=True):
            buffer.copy_(value)

    def unify_buffers(self) -> None:
        """Copy one rank's running statistics to all: each rank has those of its own images."""
        if self.coordinates.data_ranks > 1:
            for buffer in self.network.buffers():
                dist.broadcast(buffer, group=self._data_group, group_src=0)

    def whole_state(self) -> dict[str, Tensor]:
        """Return the state dict, in the CPU's memory, on rank 0; an empty one on other ranks.

        A device needs memory for one whole tensor at a time.
        """
        self.unify_buffers()
        whole: dict[str, Tensor] = {}
        for name, tensor in self.network.state_dict().items():
            # A collective call of all ranks that hold a part of the tensor.
            full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            if self.coordinates.is_first_of_stage:
                whole[name] = full.cpu()
        if self._pipeline is not None and self.coordinates.is_first_of_stage:
            group = self._mesh_of(PIPELINE).get_group()
            whole = gather_stages(whole, group, self._world.device)
        return whole if self._world.is_first else {}

    def _mesh_of(self, dimension: str) -> DeviceMesh:
        assert self._mesh is not None
        return self._mesh[dimension]

    @property
    def _data_group(self) -> dist.ProcessGroup | None:
        """The group of ranks with the same layers and different images; None for all ranks."""
        return None if self._mesh is None else self._mesh_of(DATA).get_group()


def memory_format(
    network: nn.Module, options: ParallelOptions, device: torch.device
) -> torch.memory_format:
    """Return channels last if the option says so, or by default where torch advises it.

    Tensor cores compute convolutions in this format. CUDA's group normalization does not: it would
    convert features to the other format and back in each layer. Source: docs.pytorch.org,
    "Channels Last Memory Format in PyTorch".
    """
    kinds = [type(module) for module in network.modules()]
    is_advised = device.type == "cuda" and nn.Conv2d in kinds and nn.GroupNorm not in kinds
    is_chosen = is_advised if options.channels_last is None else options.channels_last
    return torch.channels_last if is_chosen else torch.preserve_format


def blocks(network: nn.Module) -> Sequence[nn.Module]:
    """Return the parts of a network that have parameters, among its `blocks()` or its children."""
    listed: Any = getattr(network, "blocks", network.children)
    if not isinstance(listed, nn.Sequential):  # those of timm's transformers are an attribute
        listed = listed()
    return [block for block in listed if next(block.parameters(), None) is not None]


def _split_layers(network: nn.Module, mesh: DeviceMesh) -> None:
    from torch.distributed.tensor.parallel import parallelize_module  # noqa: PLC0415  # slow to import

    if not hasattr(network, "tensor_parallel_plan"):
        raise LaunchInvalid(
            f"{type(network).__name__} cannot be split: it has no tensor_parallel_plan(ranks), "
            "a plan for torch's parallelize_module"
        )
    parallelize_module(network, mesh, cast("Any", network).tensor_parallel_plan(mesh.size()))


def shard(parts: Sequence[nn.Module], mesh: DeviceMesh, *, keep_gathered: bool) -> None:
    """Shard each part's parameters over the ranks of `mesh`; see `--parallel fsdp`."""
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415  # slow to import

    for part in parts:
        fully_shard(part, mesh=mesh, reshard_after_forward=not keep_gathered)
