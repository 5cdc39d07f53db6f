"""Ranks forked from a process that has torch already: the import is half of a tiny run's time."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import time
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

import matplotlib.figure
import torch

import trainers.checkpointing.sharded_state
import trainers.train
from tests.local.trainers import torchvision_on_cpu

with contextlib.suppress(ImportError):  # most machines have none, and do without
    torchvision_on_cpu.install()

# A run imports these when it draws and when it saves: here, once for all.
PRELOADED = (matplotlib.figure, trainers.checkpointing.sharded_state)

_DEADLINE_SECONDS = 100
_PRELOADED = (
    "tests.local.trainers.forked_ranks",
    # The trainer imports these when it needs them: seconds for each rank, here once.
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
)


def run_rank(arguments: list[str], variables: dict[str, str], log: Path) -> None:
    """The program of one rank; its output goes to `log`."""
    os.environ.update(variables)
    torch.set_num_threads(1)
    with log.open("wb") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    code = trainers.train.main(arguments)
    sys.stdout.flush()
    os._exit(code)


def context() -> ForkServerContext:
    """Where to fork from."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(list(_PRELOADED))
    return server


@dataclass(kw_only=True)
class ForkedRanks:
    """Processes that train together."""

    processes: list[BaseProcess]
    logs: list[Path]

    @property
    def seen(self) -> str:
        """What all of them said, the first one first."""
        return "".join(log.read_text() for log in self.logs if log.exists())

    def wait(self) -> list[int | None]:
        """Wait for all of them: their exit codes by rank."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
        return [process.exitcode for process in self.processes]
