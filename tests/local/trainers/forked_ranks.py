"""Ranks forked from a process that has torch already: the import is half of a tiny run's time."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import re
import shlex
import sys
import time
import traceback
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Self

import torch
from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

import trainers.checkpointing.sharded_state
import trainers.train
from trainers.vision import library

# A run imports these when it saves, and when it crops images: here, once for all.
PRELOADED = (
    trainers.checkpointing.sharded_state,
    library("torchvision.transforms.v2.functional"),
)

DEADLINE_SECONDS = 200  # for ranks that take a second or two where nothing else runs
_POLL_SECONDS = 0.01
_RANK = Path(__file__).with_name("torchrun_rank.py")
_STEP = re.compile(r"^step (\d+)/\d+ loss (\S+) images/s \d+$", re.MULTILINE)
_PRELOADED = (
    "tests.local.trainers.forked_ranks",
    # The trainer and torch import these when they need them: seconds for each rank, here once.
    "torch._dynamo",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "torch.utils.tensorboard",
)


def losses(seen: str) -> dict[int, float]:
    """The loss of each step that a run has logged."""
    return {int(step): float(loss) for step, loss in _STEP.findall(seen)}


def run_rank(
    arguments: list[str],
    variables: dict[str, str],
    log: Path,
    *,
    double: bool = False,
) -> None:
    """The program of one rank; its output goes to `log`.

    Args:
        arguments: the command line.
        variables: added to the environment.
        log: of this rank alone.
        double: compute in float64.
    """
    _begin(variables, log)
    if double:
        torch.set_default_dtype(torch.float64)
    code = trainers.train.main(arguments)
    sys.stdout.flush()
    os._exit(code)


def run_command(command: str, variables: dict[str, str], log: Path) -> None:
    """A job's command: `python -m` of the trainers' programs, each after the one before it."""
    _begin(variables, log)
    code = 0
    for part in command.split("&&"):
        python, option, module, *arguments = shlex.split(part)
        assert (python, option) == ("python", "-m"), part
        code = importlib.import_module(module).main(arguments)
        if code:
            break
    sys.stdout.flush()
    os._exit(code)


def run_torchrun(
    options: list[str], arguments: list[str], variables: dict[str, str], log: Path
) -> None:
    """torchrun's command line; it forks its ranks, and their output goes to its `log`."""
    _begin(variables, log)
    forking = ["--run-path", "--start-method=fork", str(_RANK)]
    try:
        torchrun.main([*options, *forking, *arguments])
    except ChildFailedError:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _begin(variables: dict[str, str], log: Path) -> None:
    os.environ.update(variables)
    with log.open("wb") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    sys.stderr = os.fdopen(2, "w", buffering=1)


def context() -> ForkServerContext:
    """The context whose processes are forked from one that has loaded torch."""
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
        """The output of all ranks, the first rank first."""
        return "".join(log.read_text() for log in self.logs if log.exists())

    def losses(self) -> dict[int, float]:
        """The loss of each step that rank 0 has logged."""
        return losses(self.seen)

    def read_until(self, pattern: str) -> re.Match[str]:
        """Wait until a line of rank 0 matches."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            is_over = self.processes[0].exitcode is not None
            said = self.logs[0].read_text() if self.logs[0].exists() else ""
            if match := re.search(pattern, said, re.MULTILINE):
                return match
            if is_over:
                break
            time.sleep(_POLL_SECONDS)
        raise AssertionError(f"no line matches {pattern!r}:\n{self.seen}")

    def wait(self) -> list[int | None]:
        """Wait for all of them: their exit codes by rank."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
        return [process.exitcode for process in self.processes]

    def ended(self, *codes: int) -> Self:
        """Wait for all of them, which end with these exit codes."""
        assert self.wait() == [*codes], self.seen
        return self
