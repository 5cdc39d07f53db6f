"""CPU and memory of a tree of processes that waits for work."""

from __future__ import annotations

import time
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class IdleUsage:
    """Of a process and all its descendants.

    Attributes:
        rss_mib: resident set, MiB; pages shared between the processes count for each.
        cpu_percent: CPU time over wall time; 100 is one core.
    """

    rss_mib: float
    cpu_percent: float


def idle_usage(process: psutil.Process, seconds: float) -> IdleUsage:
    """Watch a tree of processes that has nothing to do for so long."""
    before = cpu_seconds(process)
    began = time.monotonic()
    time.sleep(seconds)
    used = cpu_seconds(process) - before
    rss_bytes = sum(each.memory_info().rss for each in _tree(process))
    return IdleUsage(rss_bytes / 2**20, 100 * used / (time.monotonic() - began))


def cpu_seconds(process: psutil.Process) -> float:
    """CPU time of a process and all its living descendants since they started."""
    times = [each.cpu_times() for each in _tree(process)]
    return sum(each.user + each.system for each in times)


def _tree(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]
