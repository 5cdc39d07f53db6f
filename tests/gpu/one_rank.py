"""FSDP and a pipeline in a process group of one rank: NCCL on a GPU, Gloo on a CPU.

`python -m tests.gpu.one_rank` prints one JSON object: the loss by a plain backward pass, by FSDP's
and by a pipeline of one stage, and how far their gradients are apart. Our own runs have no process
group in a world of one, so this is the only way to NCCL on a machine with one GPU.
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.nn import functional

from trainers.parallelism.parallel import shard
from trainers.parallelism.pipeline import Pipeline, Stage
from trainers.plugins import build_network

IMAGES, SIZE, CLASSES = 8, 32, 10


def main() -> None:
    """Run the command line above."""
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    backend = "nccl" if device.type == "cuda" else "gloo"
    torch.backends.cudnn.allow_tf32 = False
    with tempfile.TemporaryDirectory() as folder:
        meeting_point = f"file://{folder}/store"
        dist.init_process_group(backend, init_method=meeting_point, rank=0, world_size=1)
        told = _compare(device, backend)
        dist.destroy_process_group()
    sys.stdout.write(json.dumps(told) + "\n")


def _compare(device: torch.device, backend: str) -> dict[str, Any]:
    torch.manual_seed(0)
    network = build_network("resnet20", channels=3, classes=CLASSES)
    images, labels = torch.randn(IMAGES, 3, SIZE, SIZE).to(device), torch.arange(IMAGES).to(device)
    plain = copy.deepcopy(network).to(device)
    plain_loss = _backward(plain, images, labels)
    told: dict[str, Any] = {"backend": backend, "plain": plain_loss}

    mesh = DeviceMesh(device.type, [0])
    sharded = copy.deepcopy(network)
    shard([sharded], mesh, keep_gathered=False)
    sharded.to(device)
    told["fsdp"] = _backward(sharded, images, labels)
    told["fsdp_apart"] = _apart(plain, sharded)

    whole = copy.deepcopy(network).to(device)
    pipeline = Pipeline(
        Stage(whole.pipeline_parts(), precision="fp32", device=device),  # type: ignore[operator]
        schedule="gpipe",
        microbatches=2,
        device=device,
        group=dist.group.WORLD,  # type: ignore[arg-type]  # there is one
    )
    told["pipeline"] = float(pipeline.forward_backward(images, labels, _loss))
    told["pipeline_apart"] = _apart(plain, whole)
    return told


def _loss(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels, reduction="sum") / IMAGES


def _backward(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    loss = _loss(network(images), labels)
    loss.backward()
    return loss.item()


def _apart(plain: nn.Module, other: nn.Module) -> float:
    """The largest difference of a gradient's element, by the largest element."""
    largest, apart = 0.0, 0.0
    for mine, its in zip(plain.parameters(), other.parameters(), strict=True):
        assert mine.grad is not None
        assert its.grad is not None
        gradient = its.grad.full_tensor() if isinstance(its.grad, DTensor) else its.grad
        largest = max(largest, float(mine.grad.abs().max()))
        apart = max(apart, float((mine.grad - gradient).abs().max()))
    return apart / largest


if __name__ == "__main__":
    main()
