"""End child processes of a benchmark."""

from __future__ import annotations

import subprocess

import psutil


def wait_or_kill(process: subprocess.Popen[bytes] | psutil.Popen, seconds: float) -> None:
    """Wait for the end of a terminating process; kill it after a timeout."""
    try:
        process.wait(seconds)
    except (subprocess.TimeoutExpired, psutil.TimeoutExpired):
        process.kill()
        process.wait()
