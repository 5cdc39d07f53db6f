"""CPU and memory of an idle process tree."""

from __future__ import annotations

import time

import psutil

from benchmarks.harness import Sample


def idle_usage(process: psutil.Process, seconds: float) -> Sample:
    """Measure an idle process and its descendants for some seconds.

    Returns:
        The resident set, to which shared pages count for each process, and the CPU time, of which
        100 % is one core.
    """
    before = cpu_seconds(process)
    began = time.monotonic()
    time.sleep(seconds)
    used = cpu_seconds(process) - before
    rss_bytes = sum(each.memory_info().rss for each in _tree(process))
    cpu_percent = 100 * used / (time.monotonic() - began)
    return {"idle RSS MiB": rss_bytes / 2**20, "idle CPU %": cpu_percent}


def cpu_seconds(process: psutil.Process) -> float:
    """CPU time of a process and all its living descendants since they started."""
    times = [each.cpu_times() for each in _tree(process)]
    return sum(each.user + each.system for each in times)


def _tree(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]
