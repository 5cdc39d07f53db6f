"""Ranks of a training: real processes on this machine, each with one thread to compute with."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Self

from benchmarks.child_process import REPOSITORY
from benchmarks.harness import ProcessFailed
from localazure.processes.ports import free_ports

RANKS = 2


class Ranks:
    """Processes that train together; only rank 0 prints. Those still running at exit are killed.

    Args:
        arguments: of Python.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        port = str(free_ports(1)[0])
        self.began = time.monotonic()
        self.processes = [
            subprocess.Popen(
                [sys.executable, *arguments],
                cwd=REPOSITORY,
                env={**os.environ, "OMP_NUM_THREADS": "1", **_variables(rank, port)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(RANKS)
        ]
        self.said = ""

    def read_until(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Read rank 0's lines until one matches."""
        output = self.processes[0].stdout
        assert output is not None
        for line in output:
            self.said += line
            if match := pattern.search(line):
                return match
        raise ProcessFailed(f"no line matches {pattern.pattern}:\n{self.said[-2000:]}")

    def finish(self) -> str:
        """Wait for the end of all ranks; return rank 0's output."""
        for process in self.processes:
            output, _ = process.communicate()
            if process is self.processes[0]:
                self.said += output
            if process.returncode:
                raise ProcessFailed(f"exit code {process.returncode}:\n{self.said[-2000:]}{output}")
        return self.said

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def _variables(rank: int, port: str) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(RANKS),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
