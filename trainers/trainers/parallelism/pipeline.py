"""Pipeline parallelism: a network is cut into stages, one per rank; batches into microbatches.

| --pipeline-schedule | order of the passes | activations in memory |
|---|---|---|
| gpipe | forward of all microbatches, then backward of all | of all microbatches |
| 1f1b | alternating once the pipeline is full | of as many microbatches as stages |

Sources: Huang et al., arXiv 1811.06965 (GPipe); Narayanan et al., arXiv 1806.03377 (1F1B);
docs.pytorch.org, torch.distributed.pipelining.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainers.errors import LaunchInvalid

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)

LossOf = Callable[[Any, Any], Tensor]
"""Takes the network's output and targets of some samples; returns their part of the loss."""


def keep_stage(network: nn.Module, stage: int, stages: int) -> list[nn.Module]:
    """Return the parts of a stage. Remove the others from the network; parameter names stay.

    Raises:
        LaunchInvalid: the network has no `pipeline_parts()`, too few parts, or batch normalization.
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
    if any(isinstance(module, BATCH_NORMS) for module in network.modules()):
        raise LaunchInvalid(
            "batch normalisation in a pipeline would be by microbatch: take a model that "
            "normalises by group or layer"
        )
    names = {module: name for name, module in network.named_modules()}
    kept = torch.arange(len(parts)).tensor_split(stages)[stage].tolist()
    for number, part in enumerate(parts):
        if number not in kept:
            network.set_submodule(names[part], nn.Identity())
    return [parts[number] for number in kept]


class Stage(nn.Sequential):
    """The parts of one stage. Stages exchange contiguous tensors."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # nn.Sequential's name
        """Return the input of the next stage; on the last stage, the logits."""
        return super().forward(input).contiguous()


class Pipeline:
    """The schedule of all stages, as this rank's stage runs it."""

    def __init__(
        self,
        module: nn.Module,
        *,
        schedule: str,
        microbatches: int,
        device: torch.device,
        group: dist.ProcessGroup,
        loss_of: LossOf,
    ) -> None:
        from torch.distributed import pipelining  # noqa: PLC0415  # seconds of import

        stage = pipelining.PipelineStage(
            module, dist.get_rank(group), dist.get_world_size(group), device, group=group
        )
        self._is_first, self._is_last = stage.is_first, stage.is_last
        self._device = device
        kind: Any = pipelining.schedules.get_schedule_class(schedule)
        self._schedule = kind(stage, microbatches, loss_fn=loss_of, scale_grads=False)

    def forward_backward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Do all passes of a batch. Return the sum of its losses on the last stage, else 0."""
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


class SequentialStages(nn.Module):
    """All stages in sequence, for evaluation. Each stage broadcasts its output to the others."""

    def __init__(self, stage: nn.Module, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.stage = stage
        self._group = group

    def forward(self, features: Tensor) -> Tensor:
        """Return the last stage's output on every rank. All ranks must pass the same images."""
        for stage in range(dist.get_world_size(self._group)):
            is_mine = stage == dist.get_rank(self._group)
            output = self.stage(features).contiguous() if is_mine else None
            features = _broadcast(output, stage, self._group, features.device)
        return features


def gather_stages(
    state: dict[str, Tensor], group: dist.ProcessGroup, device: torch.device
) -> dict[str, Tensor]:
    """Return the tensors of all stages in the CPU's memory, on every rank of the group."""
    names: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(names, list(state), group=group)
    whole: dict[str, Tensor] = {}
    for stage, of_stage in enumerate(names):
        is_mine = stage == dist.get_rank(group)
        for name in of_stage:
            mine = state[name].to(device) if is_mine else None
            whole[name] = _broadcast(mine, stage, group, device).cpu()
    return whole


def _broadcast(
    tensor: Tensor | None, stage: int, group: dist.ProcessGroup, device: torch.device
) -> Tensor:
    """Send a stage's tensor to the devices of all ranks of the group. The others pass None."""
    kind: list[Any] = [None if tensor is None else (tensor.shape, tensor.dtype)]
    dist.broadcast_object_list(kind, group=group, group_src=stage)
    if tensor is None:
        shape, dtype = kind[0]
        tensor = torch.empty(shape, dtype=dtype, device=device)
    dist.broadcast(tensor, group=group, group_src=stage)
    return tensor
