"""The distribution of a network over the ranks.

| option | each rank holds | known as |
|---|---|---|
| --parallel ddp | everything; gradients are averaged | DDP |
| --parallel fsdp | a part of parameters, gradients, optimizer; gathers block by block | ZeRO-3 |
| --parallel fsdp --keep-gathered | the same; gathers a block once per step, not twice | ZeRO-2 |
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
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from trainers.errors import LaunchInvalid
from trainers.parallelism.mesh import DATA, PIPELINE, TENSOR, device_mesh, rank_coordinates
from trainers.parallelism.options import ParallelOptions
from trainers.parallelism.pipeline import (
    BATCH_NORMS,
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
# Operations whose outputs `--checkpoint-activations selective` keeps.
_PRODUCTS = (
    *("mm", "addmm", "bmm", "baddbmm", "convolution"),
    *("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu"),
    *("_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention"),
)
_COMPILATIONS = 8  # of a part: in training, in evaluation, with other batch sizes


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
        self._memory_format = memory_format(network, options, world.device)
        self._sharded = options.parallel == "fsdp" and coordinates.data_ranks > 1
        # Ranks of --average-every step alone: they exchange neither gradients nor statistics.
        self._shares_weights = coordinates.data_ranks > 1 and options.average_every is None
        self.has_mixed_tensors = coordinates.tensor_ranks > 1
        is_split = self._sharded or self.has_mixed_tensors
        self.is_whole = not is_split
        has_stages = coordinates.stages > 1
        self._mesh = device_mesh(coordinates, world) if is_split or has_stages else None
        self.network = network
        self.evaluated = self._cut()
        if options.compile is not None:  # in place, so that evaluation is compiled, too
            compile_parts(repeated_blocks(network) or [network], options.compile)
        if options.checkpoint_activations is not None:
            checkpoint_activations(blocks(network), options.checkpoint_activations)
        is_short = options.precision == "bf16"
        gathers_short = is_short and self._sharded and may_gather_bf16(network)
        if is_short and not gathers_short:
            compute_in_bf16(self.evaluated, world.device)
        if self._sharded:  # before the move to the device, which may be too small for the whole
            shard(
                [*blocks(network), self.evaluated],
                self._mesh_of(DATA),
                keep_gathered=options.keep_gathered,
                in_bf16=gathers_short,
            )
        # Shards and split layers need contiguous parameters.
        layout = self._memory_format if self._mesh is None else torch.preserve_format
        # torch's type of `to` lacks the call with a memory format.
        cast("Any", network).to(world.device, memory_format=layout)
        self.module = self.evaluated
        if self._shares_weights and not self._sharded:
            self.module = DistributedDataParallel(
                self.evaluated,
                device_ids=[world.device] if world.device.type == "cuda" else None,
                process_group=self._data_group,
                # No second copy of the gradients, and no exchange of the statistics in each pass:
                # `unify_buffers` has the first rank's where they count.
                gradient_as_bucket_view=True,
                broadcast_buffers=False,
            )
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

    def _cut(self) -> nn.Module:
        """Keep this rank's part of the layers; return the module that calls them."""
        coordinates, device = self.coordinates, self._world.device
        if coordinates.tensor_ranks > 1:
            _split_layers(self.network, self._mesh_of(TENSOR))
        core = self.network
        if coordinates.stages > 1:
            parts = keep_stage(self.network, coordinates.stage, coordinates.stages)
            core = Stage(*parts)
        if self._shares_weights and device.type == "cuda":  # torch has none for CPUs
            core = nn.SyncBatchNorm.convert_sync_batchnorm(core, self._data_group)
        return core

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
        if self._sharded:
            cast("Any", self.network).set_requires_gradient_sync(last)
        waits = isinstance(self.module, DistributedDataParallel) and not last
        with cast("Any", self.module).no_sync() if waits else contextlib.nullcontext():
            loss = self._loss_of(self.module(inputs, *further), targets)
            loss.backward()
        return loss.detach()

    def clip_gradients(self, norm: float) -> None:
        """Scale the gradients of the whole batch down, so that their norm is at most `norm`."""
        # Only on a GPU has torch one kernel for all tensors; DTensors take it if they are told to.
        is_cuda = self._world.device.type == "cuda"
        parameters = self.network.parameters()
        nn.utils.clip_grad_norm_(parameters, norm, foreach=True if is_cuda else None)

    def reshard(self) -> None:
        """Have FSDP gather parameters again before their next use: their values changed."""
        for module in self.evaluated.modules() if self._sharded else ():
            if hasattr(module, "reshard"):
                cast("Any", module).reshard()

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
        """Return a copy of the state dict, on the CPU, on rank 0; an empty one on other ranks.

        A device needs memory for one whole tensor at a time.
        """
        self.unify_buffers()
        whole: dict[str, Tensor] = {}
        for name, tensor in self.network.state_dict().items():
            # A collective call of all ranks that hold a part of the tensor.
            full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            if self.coordinates.is_first_of_stage:
                # The network may change after this.
                whole[name] = full.to("cpu", copy=True)
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


def repeated_blocks(network: nn.Module) -> list[nn.Module]:
    """Return the repeated parts of a network: those of its `blocks`, or what torchvision repeats.

    These are the modules of each list or sequence of one class, such as residual blocks or layers
    of an encoder, that have parts of their own.
    """
    listed: Any = getattr(network, "blocks", None)
    if listed is not None:  # those of timm's transformers are an attribute
        return list(listed.children() if isinstance(listed, nn.Module) else listed())
    found: list[nn.Module] = []
    for child in network.children():
        parts = list(child.children()) if isinstance(child, nn.Sequential | nn.ModuleList) else []
        are_alike = len(parts) > 1 and len({type(part) for part in parts}) == 1
        found += parts if are_alike and any(parts[0].children()) else repeated_blocks(child)
    return found


def blocks(network: nn.Module) -> list[nn.Module]:
    """Return the repeated parts, or the children if there are none, that have parameters."""
    listed = repeated_blocks(network) or network.children()
    return [block for block in listed if next(block.parameters(), None) is not None]


def compile_parts(parts: Sequence[nn.Module], backend: str | Callable[..., Any]) -> None:
    """Compile the forward pass of each part. Parts of one class and shape are compiled once.

    In training and evaluation, and with other shapes, a part is compiled again: torch allows for
    eight times of one function, which is that of all parts of a class.
    """
    for part in parts:
        limit = _COMPILATIONS * len(parts)
        # torch's overloads lack the limit.
        part.forward = cast("Any", torch.compile)(
            part.forward, backend=backend, recompile_limit=limit
        )


def _split_layers(network: nn.Module, mesh: DeviceMesh) -> None:
    from torch.distributed.tensor.parallel import parallelize_module  # noqa: PLC0415  # slow to import

    if not hasattr(network, "tensor_parallel_plan"):
        raise LaunchInvalid(
            f"{type(network).__name__} cannot be split: it has no tensor_parallel_plan(ranks), "
            "a plan for torch's parallelize_module"
        )
    parallelize_module(network, mesh, cast("Any", network).tensor_parallel_plan(mesh.size()))


def checkpoint_activations(
    parts: Sequence[nn.Module], policy: Literal["full", "selective"]
) -> None:
    """Have each part compute its activations again in the backward pass, with the same draws.

    `selective` keeps the outputs of matrix products, convolutions and attention, and computes only
    the cheap rest again, as norms and activation functions. Source: Korthikanti et al., arXiv
    2205.05198, section 5; torchtitan, whose list of operations is longer.
    """
    aten: Any = torch.ops.aten
    kept = [getattr(aten, name).default for name in _PRODUCTS if policy == "selective"]

    def contexts(norms: Sequence[Any]) -> tuple[Any, Any]:
        plain = contextlib.nullcontext()
        first, again = create_selective_checkpoint_contexts(kept) if kept else (plain, plain)
        return first, _without_counting(norms, again)

    for part in parts:
        norms = [module for module in part.modules() if isinstance(module, BATCH_NORMS)]
        part.forward = functools.partial(
            *(checkpoint, part.forward),
            use_reentrant=False,
            context_fn=functools.partial(contexts, norms),
        )


@contextlib.contextmanager
def _without_counting(
    norms: Sequence[Any], inner: contextlib.AbstractContextManager[object]
) -> Generator[None]:
    """Keep running statistics inside the block: the first forward pass has counted the batch."""
    before = [(norm, norm.momentum, norm.num_batches_tracked) for norm in norms]
    try:
        for norm, _, count in before:
            norm.momentum, norm.num_batches_tracked = 0.0, None if count is None else count.clone()
        with inner:
            yield
    finally:
        for norm, momentum, count in before:
            norm.momentum, norm.num_batches_tracked = momentum, count


def compute_in_bf16(module: nn.Module, device: torch.device) -> None:
    """Run a module's forward under autocast; it returns a tensor of bfloat16 in 32 bits."""

    def lengthened(_: nn.Module, __: Any, output: Any) -> Any:
        is_short = isinstance(output, Tensor) and output.dtype is torch.bfloat16
        return output.float() if is_short else output

    module.forward = torch.autocast(device.type, torch.bfloat16)(module.forward)
    module.register_forward_hook(lengthened)


def may_gather_bf16(network: nn.Module) -> bool:
    """Whether FSDP may gather parameters in bfloat16, in half the bytes that autocast needs.

    Not of batch normalization, whose parameters need the type of its running statistics, nor of a
    network that computes its own loss: FSDP would round the targets, too.
    """
    has_batch_norm = any(isinstance(module, BATCH_NORMS) for module in network.modules())
    return not has_batch_norm and not getattr(network, "computes_own_loss", False)


def shard(
    parts: Sequence[nn.Module], mesh: DeviceMesh, *, keep_gathered: bool, in_bf16: bool = False
) -> None:
    """Shard each part's parameters over the ranks of `mesh`; see `--parallel fsdp`.

    `in_bf16`: gather and compute in bfloat16, and sum gradients in 32 bits. The last part, which is
    the whole, returns 32 bits.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: PLC0415  # slow to import

    *_, whole = parts
    for part in parts:
        policy = MixedPrecisionPolicy()
        if in_bf16:
            output = torch.float32 if part is whole else None
            policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, output)
        # None: the blocks are, but the whole, which the backward pass begins with, is not.
        resharded = False if keep_gathered else None
        fully_shard(part, mesh=mesh, reshard_after_forward=resharded, mp_policy=policy)
