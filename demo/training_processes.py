"""The processes of training jobs on this machine: found, suspended, killed."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import psutil


def find_rank(job: str, rank: int) -> psutil.Process | None:
    """A training process of a job; None if there is none."""
    for process, environment in _training():
        if environment["AZUREML_RUN_ID"] == job and environment.get("RANK") == str(rank):
            return process
    return None


def seconds_of_training() -> float:
    """The processor time that all processes of jobs have used: it grows while they work."""
    seconds = 0.0
    for process, _ in _training():
        with contextlib.suppress(psutil.Error):
            seconds += process.cpu_times().user
    return seconds


def _training() -> Generator[tuple[psutil.Process, dict[str, str]]]:
    for process in psutil.process_iter():
        environment: dict[str, str] = {}
        with contextlib.suppress(psutil.Error):
            environment = process.environ()
        if "AZUREML_RUN_ID" in environment:
            yield process, environment


@contextlib.contextmanager
def suspended(process: psutil.Process) -> Generator[None]:
    """Suspend a process during the context, unless it ends before or meanwhile."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.suspend()
    try:
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


def kill(process: psutil.Process) -> None:
    """Kill a process, unless it has ended: injected faults end processes, too."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
