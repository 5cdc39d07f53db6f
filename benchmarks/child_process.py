"""The end of a benchmark's child processes."""

from __future__ import annotations

import subprocess

import psutil


def wait_or_kill(process: subprocess.Popen[bytes] | psutil.Popen, seconds: float) -> None:
    """Wait for the end of a process that was asked to end; kill it if that takes too long."""
    try:
        process.wait(seconds)
    except (subprocess.TimeoutExpired, psutil.TimeoutExpired):
        process.kill()
        process.wait()
