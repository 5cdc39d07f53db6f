"""A GPU machine without our packages can train, and can run `python -m tests.gpu`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
# The packages that docs/trainers.md and tests/gpu name, and those that torch itself requires.
NEEDED = ("torch", "torchvision", "numpy", "PIL", "safetensors", "pyarrow")
OF_TORCH = (
    *("torchgen", "functorch", "typing_extensions", "filelock", "fsspec", "jinja2", "markupsafe"),
    *("sympy", "mpmath", "networkx", "setuptools", "_distutils_hack", "packaging"),
)
OURS = ("trainers", "tests", "benchmarks")
PROGRAM = f"""
import sys
from importlib.machinery import PathFinder

allowed = {{*{(*NEEDED, *OF_TORCH, *OURS)!r}, *sys.stdlib_module_names}}
find_spec = PathFinder.find_spec
PathFinder.find_spec = lambda name, *further: (
    find_spec(name, *further)
    if name.partition(".")[0] in allowed or name.startswith("_sysconfigdata")
    else None
)
try:
    import yaml
except ImportError:
    pass
else:
    sys.exit("the import of other packages is not blocked")

import benchmarks.checkpoint_stall
import tests.gpu.checks
import tests.gpu.one_rank
import tests.local.trainers.drawn_shapes
import tests.unit.trainers.small_datasets
import trainers.evaluate
import trainers.score
from trainers import train

sys.exit(train.main(sys.argv[1:]))
"""


def test_training_needs_no_other_package(tmp_path: Path) -> None:
    options = (
        *("--dataset", "synthetic", "--synthetic-images", "16", "--synthetic-classes", "2"),
        *("--image-size", "8", "--batch-size", "8", "--epochs", "1"),
        *("--output-dir", str(tmp_path / "results"), "--checkpoint-dir", str(tmp_path / "saved")),
    )
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *options],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    # torch itself warns, on some Pythons, that Triton is not there.
    said = [line for line in ended.stderr.splitlines() if "triton not found" not in line]
    assert said == []
    assert (tmp_path / "results" / "metrics.json").exists()
