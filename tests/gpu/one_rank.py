"""FSDP and a pipeline in a process group of one rank: NCCL on a GPU, Gloo on a CPU.

`python -m tests.gpu.one_rank` prints one JSON object: the loss of a plain backward pass, of FSDP
and of a pipeline of one stage, and the differences of their gradients. A run of one rank has no
process group, so only this program uses NCCL on a machine with one GPU.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import tempfile
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.nn import functional

from trainers.parallelism.devices import use_device
from trainers.parallelism.parallel import shard
from trainers.parallelism.pipeline import Pipeline, Stage
from trainers.plugins import build_network

IMAGES, SIZE, CLASSES = 8, 32, 10


def main() -> None:
    """Run the command line above."""
    on_cuda = torch.cuda.is_available()
    device = use_device(0 if on_cuda else None, neighbours=1, environment=os.environ)
    backend = "nccl" if on_cuda else "gloo"
    torch.backends.cudnn.allow_tf32 = False
    with tempfile.TemporaryDirectory() as folder:
        store = f"file://{folder}/store"
        dist.init_process_group(
            backend,
            init_method=store,
            rank=0,
            world_size=1,
            device_id=device if on_cuda else None,
        )
        found = _compare(device, backend)
        dist.destroy_process_group()
    sys.stdout.write(json.dumps(found) + "\n")


def _compare(device: torch.device, backend: str) -> dict[str, Any]:
    torch.manual_seed(0)
    network = build_network("resnet20", channels=3, classes=CLASSES, size=SIZE)
    images, labels = torch.randn(IMAGES, 3, SIZE, SIZE).to(device), torch.arange(IMAGES).to(device)
    plain = copy.deepcopy(network).to(device)
    plain_loss = _backward(plain, images, labels)
    found: dict[str, Any] = {"backend": backend, "plain": plain_loss}

    mesh = DeviceMesh(device.type, [0])
    sharded = copy.deepcopy(network)
    shard([sharded], mesh, keep_gathered=False)
    sharded.to(device)
    found["fsdp"] = _backward(sharded, images, labels)
    found["fsdp_difference"] = _difference(plain, sharded)

    whole = copy.deepcopy(network).to(device)
    pipeline = Pipeline(
        Stage(*cast("Any", whole).pipeline_parts()),
        schedule="gpipe",
        microbatches=2,
        device=device,
        group=dist.group.WORLD,  # type: ignore[arg-type]  # there is one
        loss_of=_loss,
    )
    found["pipeline"] = float(pipeline.forward_backward(images, labels))
    found["pipeline_difference"] = _difference(plain, whole)
    return found


def _loss(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels, reduction="sum") / IMAGES


def _backward(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    loss = _loss(network(images), labels)
    loss.backward()
    return loss.item()


def _difference(plain: nn.Module, other: nn.Module) -> float:
    """The largest difference of an element of the gradients, relative to the largest element."""
    largest, difference = 0.0, 0.0
    for mine, its in zip(plain.parameters(), other.parameters(), strict=True):
        assert mine.grad is not None
        assert its.grad is not None
        gradient = its.grad.full_tensor() if isinstance(its.grad, DTensor) else its.grad
        largest = max(largest, float(mine.grad.abs().max()))
        difference = max(difference, float((mine.grad - gradient).abs().max()))
    return difference / largest


if __name__ == "__main__":
    main()
