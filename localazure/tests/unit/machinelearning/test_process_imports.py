"""The imports of the workspace's and the jobs' processes, which each start must load."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Each import takes 20 ms to 400 ms of CPU.
HEAVY = {
    "aiohttp",
    "azure",
    "cryptography",
    "jwt",
    "numpy",
    "pandas",
    "pydantic",
    "requests",
    "yarl",
}


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("runner", HEAVY),
        ("minibatches", HEAVY | {"asyncio", "ssl", "psutil"}),
        ("serving.scoring_server", HEAVY | {"asyncio", "psutil"}),
        ("service", {"azure", "jwt", "requests"}),
    ],
)
def test_a_process_does_not_load_what_it_does_not_run(module: str, unwanted: set[str]) -> None:
    program = f"import sys, localazure.machinelearning.{module}; print(*sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert not set(answer.stdout.split()) & unwanted
