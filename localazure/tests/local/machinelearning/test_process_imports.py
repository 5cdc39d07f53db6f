"""The imports of the workspace's and the jobs' processes, which each start must load."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise

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


UNWANTED = {
    "serving.minibatches": HEAVY | {"asyncio", "ssl", "psutil"},
    "serving.scoring_server": HEAVY | {"asyncio", "psutil"},
    "jobs.runner": HEAVY,
    "service": {"azure", "jwt", "requests"},
}
"""The modules that each process must not load. Each set includes the next one."""

PROGRAM = """
import importlib, json, sys
loaded = {}
for module in sys.argv[1:]:
    importlib.import_module(f"localazure.machinelearning.{module}")
    loaded[module] = list(sys.modules)
print(json.dumps(loaded))
"""


def test_a_process_does_not_load_what_it_does_not_run() -> None:
    """One process imports all: a module counts against itself and those with larger sets only."""
    assert all(larger >= smaller for larger, smaller in pairwise(UNWANTED.values()))
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, *UNWANTED], check=True, capture_output=True, text=True
    )
    loaded = json.loads(answer.stdout)
    found = {
        module: sorted(names.intersection(loaded[module])) for module, names in UNWANTED.items()
    }
    assert not any(found.values()), found
