"""Failures of real runs, on demand: hangs, full disks, networks that diverge."""

from __future__ import annotations

import dataclasses
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.local.trainers.own_example import stripes
from trainers.checkpointing import sharded_state
from trainers.data.dataset import Dataset, DatasetRequest
from trainers.data.images import Samples, SampleSource

HANGS_AFTER_IMAGES = 24  # three steps of two ranks
SLOW_SECONDS = 4.0
_NEVER = threading.Event()
_SMALL_DISK = 100_000  # bytes of a file
_ALL_MEMORY = 2**46  # bytes: more than any machine has, less than an address space


class _Hanging:
    """After three steps, the rank whose number is `rank` calls `hang`."""

    def __init__(self, images: SampleSource, rank: int, hang: Callable[[], object]) -> None:
        self._images = images
        self._rank = str(rank)
        self._hang = hang
        self._taken = 0

    def __len__(self) -> int:
        return len(self._images)

    def take(self, numbers: Tensor) -> Samples:
        self._taken += len(numbers)
        if self._taken > HANGS_AFTER_IMAGES and os.environ["RANK"] == self._rank:
            self._hang()
        return self._images.take(numbers)


def wait_for_an_annotation_that_never_comes() -> None:
    _NEVER.wait()


def hanging_stripes(request: DatasetRequest) -> Dataset:
    """`stripes`, but rank 1 waits for ever for images of its fourth step."""
    dataset = stripes(request)
    images = _Hanging(dataset.train, 1, wait_for_an_annotation_that_never_comes)
    return dataclasses.replace(dataset, train=images)


def first_rank_stops(request: DatasetRequest) -> Dataset:
    """`stripes`, but rank 0 is stopped in its fourth step, with the store that it has."""
    dataset = stripes(request)
    return dataclasses.replace(dataset, train=_Hanging(dataset.train, 0, stop_this_process))


def second_rank_stops(request: DatasetRequest) -> Dataset:
    """`stripes`, but rank 1 is stopped in its fourth step."""
    dataset = stripes(request)
    return dataclasses.replace(dataset, train=_Hanging(dataset.train, 1, stop_this_process))


def stop_this_process() -> None:
    """As a machine that is frozen: its connections stay open, and nothing answers."""
    os.kill(os.getpid(), signal.SIGSTOP)


class _Head(nn.Module):
    """A linear layer for the mean of each channel."""

    def __init__(self, *, channels: int, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(images.mean(dim=(2, 3)))


class Greedy(_Head):
    """Wants as many activations as no machine can hold."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) + torch.empty(_ALL_MEMORY // 4)[0]


def stripes_on_a_small_disk(request: DatasetRequest) -> Dataset:
    """`stripes`, but from now on this process can write no file as large as a checkpoint's part."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_SMALL_DISK, most))
    return stripes(request)


def stripes_on_a_slow_disk(request: DatasetRequest) -> Dataset:
    """`stripes`, but from now on each checkpoint takes longer than a step may."""
    write = sharded_state.write

    def slow(folder: Path, state: sharded_state.State, group: Any) -> None:
        time.sleep(SLOW_SECONDS)
        write(folder, state, group)

    sharded_state.write = slow
    return stripes(request)


class SlowToCompile(_Head):
    """Its first pass takes longer than a step may."""

    passes = 0

    def forward(self, images: Tensor) -> Tensor:
        if not SlowToCompile.passes:
            time.sleep(SLOW_SECONDS)
        SlowToCompile.passes += 1
        return super().forward(images)


class Cliff(_Head):
    """Its loss is finite and its gradients are not: the root of 0 is infinitely steep."""

    def forward(self, images: Tensor) -> Tensor:
        logits = super().forward(images)
        return logits + (logits * 0).sqrt()


class WithoutDeterministicForm(_Head):
    """Uses an operation that torch refuses if deterministic kernels are required."""

    def forward(self, images: Tensor) -> Tensor:
        marked = images.new_zeros(1).put_(torch.tensor([0]), torch.tensor([1.0]))
        return super().forward(images) * marked


class NeedsCublasWorkspace(_Head):
    """Wants the environment to be ready before anything is computed."""

    def __init__(self, *, channels: int, classes: int) -> None:
        if os.environ.get("CUBLAS_WORKSPACE_CONFIG") != ":4096:8":
            raise RuntimeError("cuBLAS has started without its workspace")
        super().__init__(channels=channels, classes=classes)
