"""What the processes of jobs load: each job pays for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Each takes 20 ms to 400 ms of CPU.
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
    ("module", "more"),
    [
        ("runner", set[str]()),
        ("minibatches", {"asyncio", "ssl", "psutil"}),
        ("serving.scoring_server", {"asyncio", "psutil"}),
    ],
)
def test_the_process_of_a_job_does_not_load_what_it_does_not_run(
    module: str, more: set[str]
) -> None:
    program = f"import sys, localazure.machinelearning.{module}; print(*sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert not set(answer.stdout.split()) & (HEAVY | more)


def test_the_workspace_does_not_load_the_sdk_of_storage() -> None:
    program = "import sys, localazure.machinelearning.service; print(*sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert not {"azure", "jwt", "requests"} & set(answer.stdout.split())
