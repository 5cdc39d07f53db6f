"""A network cut into stages, one for each rank of a row: a batch passes them in microbatches.

| --pipeline-schedule | forward and backward passes | activations held |
|---|---|---|
| gpipe | of all microbatches, then backward of all | of all microbatches |
| 1f1b | alternate once the pipeline is full | of as many as there are stages |

Sources: Huang et al., arXiv 1811.06965 (GPipe); Narayanan et al., arXiv 1806.03377 (1F1B);
docs.pytorch.org, torch.distributed.pipelining.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainers.errors import LaunchInvalid

SCHEDULES = {"gpipe": "ScheduleGPipe", "1f1b": "Schedule1F1B"}

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)

Item = TypeVar("Item")
LossOf = Callable[[Any, Any], Tensor]


def cut(items: Sequence[Item], count: int) -> list[Sequence[Item]]:
    """Split into `count` runs of neighbours. Lengths differ by at most one, longer ones first."""
    length, longer = divmod(len(items), count)
    ends = [number * length + min(number, longer) for number in range(count + 1)]
    return [items[begin:end] for begin, end in itertools.pairwise(ends)]


def keep_stage(network: nn.Module, stage: int, stages: int) -> list[nn.Module]:
    """The parts of one stage. The others are removed from the network; parameter names stay.

    Raises:
        LaunchInvalid: the network has no `pipeline_parts()`, too few parts, or batch normalisation.
    """
    if not hasattr(network, "pipeline_parts"):
        raise LaunchInvalid(
            f"{type(network).__name__} cannot be cut into stages: it has no pipeline_parts(), "
            "modules that make its forward pass one after the other"
        )
    parts = cast("Any", network).pipeline_parts()
    if len(parts) < stages:
        raise LaunchInvalid(
            f"{type(network).__name__} has {len(parts)} parts: too few for {stages} stages"
        )
    if any(isinstance(module, _BATCH_NORMS) for module in network.modules()):
        raise LaunchInvalid(
            "batch normalisation in a pipeline would be by microbatch: take a model that "
            "normalises by group or layer"
        )
    names = {module: name for name, module in network.named_modules()}
    for number, run in enumerate(cut(parts, stages)):
        if number != stage:
            for part in run:
                network.set_submodule(names[part], nn.Identity())
    return list(cut(parts, stages)[stage])


class Stage(nn.Module):
    """The parts of one stage. Stages exchange tensors of the default precision."""

    def __init__(self, parts: Sequence[nn.Module], *, precision: str, device: torch.device) -> None:
        super().__init__()
        self.parts = nn.Sequential(*parts)
        self._bf16 = precision == "bf16"
        self._device = device

    def forward(self, features: Tensor) -> Tensor:
        """The input of the next stage; of the last stage, the logits."""
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._bf16):
            features = self.parts(features)
        return features.to(torch.get_default_dtype()).contiguous()


class Pipeline:
    """This rank's stage, in a schedule of all stages."""

    def __init__(
        self,
        module: nn.Module,
        *,
        schedule: str,
        microbatches: int,
        device: torch.device,
        group: dist.ProcessGroup,
    ) -> None:
        from torch.distributed import pipelining  # noqa: PLC0415  # seconds of import

        stage = pipelining.PipelineStage(
            module, dist.get_rank(group), dist.get_world_size(group), device, group=group
        )
        self._is_first, self._is_last = stage.is_first, stage.is_last
        self._device = device
        self._loss_of: LossOf | None = None
        self._schedule: Any = getattr(pipelining, SCHEDULES[schedule])(
            stage, microbatches, loss_fn=self._loss, scale_grads=False
        )

    def forward_backward(self, images: Tensor, labels: Tensor, loss_of: LossOf) -> Tensor:
        """All passes of a batch. Returns the sum of its losses on the last stage, else 0."""
        self._loss_of = loss_of
        losses: list[Tensor] = []
        self._schedule.step(
            *((images,) if self._is_first else ()),
            target=labels if self._is_last else None,
            losses=losses if self._is_last else None,
            return_outputs=False,
        )
        if not losses:
            return torch.zeros((), device=self._device)
        return torch.stack(losses).sum().detach()

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        assert self._loss_of is not None
        return self._loss_of(logits, labels)


class SequentialStages(nn.Module):
    """All stages one after the other, for evaluation: each broadcasts its output to the others."""

    def __init__(self, stage: nn.Module, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.stage = stage
        self._group = group

    def forward(self, features: Tensor) -> Tensor:
        """The last stage's output on every rank. All ranks pass the same images."""
        for stage in range(dist.get_world_size(self._group)):
            is_mine = stage == dist.get_rank(self._group)
            output = self.stage(features) if is_mine else None
            shape = [None if output is None else tuple(output.shape)]
            dist.broadcast_object_list(shape, group=self._group, group_src=stage)
            assert shape[0] is not None
            features = features.new_empty(shape[0]) if output is None else output.contiguous()
            dist.broadcast(features, group=self._group, group_src=stage)
        return features


def gather_stages(
    state: dict[str, Tensor], group: dist.ProcessGroup, device: torch.device
) -> dict[str, Tensor]:
    """The tensors of all stages in the CPU's memory, on every rank of the group."""
    described: list[Any] = [None] * dist.get_world_size(group)
    mine = [(name, tuple(tensor.shape), tensor.dtype) for name, tensor in state.items()]
    dist.all_gather_object(described, mine, group=group)
    whole = dict(state)
    for stage, tensors in enumerate(described):
        for name, shape, dtype in tensors:
            if stage == 0:
                continue
            is_mine = stage == dist.get_rank(group)
            tensor = (
                state[name].to(device)
                if is_mine
                else torch.empty(shape, dtype=dtype, device=device)
            )
            dist.broadcast(tensor, group=group, group_src=stage)
            whole[name] = tensor.cpu()
    return whole
