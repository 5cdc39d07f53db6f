from __future__ import annotations

import collections
import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.profiler import ProfilerActivity, profile

from tests.unit.trainers.given_settings import settings_of
from trainers.parallelism.parallel import (
    Parallel,
    blocks,
    checkpoint_activations,
    compile_parts,
    may_gather_bf16,
    shard,
)
from trainers.parallelism.world import World
from trainers.plugins import build_network

MORE_THAN_TORCHS_LIMIT = 10


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize(
    ("widths", "graphs"),
    [([4] * 6, 1), ([*range(1, MORE_THAN_TORCHS_LIMIT + 1), 1], MORE_THAN_TORCHS_LIMIT)],
    ids=["alike", "different"],
)
def test_each_shape_of_a_block_is_compiled_once_in_training_and_once_in_evaluation(
    widths: list[int], graphs: int
) -> None:
    compiled: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        compiled.append(graph)
        return graph.forward

    torch.compiler.reset()
    parts = [nn.Linear(width, width) for width in widths]
    compile_parts(parts, backend)
    for part in parts:
        part(torch.randn(2, part.in_features))
    assert len(compiled) == graphs
    with torch.no_grad():
        for part in parts:
            part.eval()(torch.randn(2, part.in_features))
    assert len(compiled) == 2 * graphs


def backward(
    architecture: str, size: int, policy: Literal["full", "selective"] | None
) -> tuple[Tensor, list[Tensor], int]:
    """The loss, the gradients, and the bytes that the forward pass leaves for the backward pass."""
    torch.manual_seed(0)
    network = build_network(architecture, channels=3, classes=3, size=size)
    network(torch.randn(2, 3, size, size))  # what a first pass allocates for good
    if policy is not None:
        checkpoint_activations(blocks(network), policy)
    images = torch.randn(256, 3, size, size)
    torch.manual_seed(1)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        loss = network(images).square().mean()
    loss.backward()
    kept = sum(event.self_cpu_memory_usage for event in profiled.events() or ())
    return (
        loss.detach(),
        [each.grad for each in network.parameters() if each.grad is not None],
        kept,
    )


@pytest.mark.parametrize(
    ("architecture", "size"),
    [("resnet8", 8), ("timm/test_vit2", 16), ("tests.local.trainers.own_example:Perceptron", 8)],
    ids=["convolutions", "attention", "dropout"],
)
def test_checkpointed_activations_take_less_memory_and_give_the_same_bits(
    architecture: str, size: int
) -> None:
    loss, gradients, kept = backward(architecture, size, None)
    for policy in ("selective", "full"):  # the second keeps less than the first
        again, others, less = backward(architecture, size, policy)
        assert torch.equal(again, loss)
        assert all(map(torch.equal, others, gradients))
        assert len(others) == len(gradients) > 0
        assert less < kept, policy
        kept = less


@pytest.mark.parametrize(
    ("architecture", "kinds"),
    [
        ("resnet8", {"_Block": 3}),
        ("torchvision/resnet50", {"Bottleneck": 16}),
        ("torchvision/vit_b_16", {"EncoderBlock": 12}),
        ("torchvision/swin_t", {"SwinTransformerBlock": 12}),
        ("timm/resnet18", {"BasicBlock": 8}),
        ("timm/test_vit2", {"Block": 8}),
        ("torchvision/vgg11", {"Sequential": 2}),  # repeats nothing: its children
    ],
)
def test_the_repeated_parts_of_a_librarys_network_are_its_blocks(
    architecture: str, kinds: dict[str, int]
) -> None:
    with torch.device("meta"):
        network = build_network(architecture, channels=3, classes=3, size=64)
    assert collections.Counter(type(block).__name__ for block in blocks(network)) == kinds


def test_a_batch_is_counted_once_in_running_statistics_that_are_computed_again() -> None:
    def buffers(policy: Literal["full", "selective"] | None) -> dict[str, Tensor]:
        torch.manual_seed(0)
        network = build_network("torchvision/resnet18", channels=3, classes=3, size=32)
        if policy is not None:
            checkpoint_activations(blocks(network), policy)
        network(torch.randn(4, 3, 32, 32)).sum().backward()
        return dict(network.named_buffers())

    once = buffers(None)
    for policy in ("full", "selective"):
        again = buffers(policy)
        assert all(torch.equal(again[name], buffer) for name, buffer in once.items()), policy


def test_channels_last_changes_no_gradient() -> None:
    images = torch.randn(4, 3, 32, 32, dtype=torch.float64)  # 32 bits would round otherwise

    def gradients(option: str) -> list[Tensor]:
        torch.manual_seed(0)
        network = build_network("torchvision/resnet18", channels=3, classes=3, size=32).double()
        world = World(device=torch.device("cpu"), timeout=dt.timedelta(seconds=1))
        parallel = Parallel(
            network, lambda output, _: output.square().sum(), settings_of(option), world
        )
        parallel.forward_backward((images,), None, last=True)
        return [each.grad for each in network.parameters() if each.grad is not None]

    torch.testing.assert_close(gradients("--channels-last"), gradients("--no-channels-last"))


def test_what_is_outside_the_blocks_is_gathered_once_for_both_passes(tmp_path: Path) -> None:
    store = f"file://{tmp_path}/store"
    dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    try:
        network = build_network("resnet8", channels=1, classes=2, size=8)
        shard([*blocks(network), network], DeviceMesh("cpu", [0]), keep_gathered=False)
        network(torch.randn(2, 1, 8, 8))
        in_parts = {name for name, each in network.named_parameters() if isinstance(each, DTensor)}
        assert in_parts == {name for name, _ in network.named_parameters() if "stages" in name}
    finally:
        dist.destroy_process_group()


def test_synchronised_batch_normalization_keeps_32_bits_as_the_plain_one_does() -> None:
    network = nn.Sequential(nn.BatchNorm2d(2))
    assert not may_gather_bf16(network)
    assert not may_gather_bf16(nn.SyncBatchNorm.convert_sync_batchnorm(network))
    assert may_gather_bf16(nn.Sequential(nn.LayerNorm(2)))


def test_ranks_that_step_alone_exchange_no_statistics_on_gpus() -> None:
    class OnNoGpu(nn.Sequential):
        def to(self, *_: Any, **__: Any) -> OnNoGpu:
            return self

    network = OnNoGpu(nn.BatchNorm2d(2))
    world = World(size=2, device=torch.device("cuda"), timeout=dt.timedelta(seconds=1))
    Parallel(network, lambda output, _: output.sum(), settings_of("--average-every", "4"), world)
    assert type(network[0]) is nn.BatchNorm2d
