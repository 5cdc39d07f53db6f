"""A GPU machine without our packages can train: torch, numpy, pillow, safetensors are enough."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
OPTIONAL = ("matplotlib", "google_crc32c", "filelock", "pyarrow", "google.protobuf")
PROGRAM = f"""
import sys
import trainers.train
loaded = [name for name in {OPTIONAL!r} if name in sys.modules]
sys.exit(", ".join(loaded) or 0)
"""


def test_training_loads_no_package_that_it_does_not_need() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert ended.stderr == ""
    assert ended.returncode == 0
