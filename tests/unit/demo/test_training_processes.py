from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from demo.training_processes import kill, suspended


@pytest.fixture
def process() -> Iterator[psutil.Process]:
    """A process that runs until it is killed."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        yield psutil.Process(child.pid)
        child.kill()


def end(process: psutil.Process) -> None:
    process.kill()
    process.wait()


def test_a_process_may_end_while_it_is_suspended(process: psutil.Process) -> None:
    with suspended(process):
        end(process)
        kill(process)
