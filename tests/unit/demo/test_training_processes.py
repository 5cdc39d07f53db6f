from __future__ import annotations

import os
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


def test_a_process_is_suspended_and_then_resumed(process: psutil.Process) -> None:
    with suspended(process):
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
    assert os.WIFCONTINUED(os.waitpid(process.pid, os.WCONTINUED)[1])


def test_a_suspended_process_can_be_killed(process: psutil.Process) -> None:
    with suspended(process):
        kill(process)
    process.wait()
    assert not process.is_running()


def test_a_process_that_has_ended_is_suspended_and_killed_as_it_is(process: psutil.Process) -> None:
    end(process)
    with suspended(process):
        kill(process)


def test_a_process_may_end_while_it_is_suspended(process: psutil.Process) -> None:
    with suspended(process):
        end(process)
        kill(process)
