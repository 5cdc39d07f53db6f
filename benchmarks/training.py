"""The trainer's loop beside a bare loop of DDP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.child_process import REPOSITORY
from benchmarks.harness import Bench, ProcessFailed, table

BATCH, SIZE = 32, 64
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def measure(bench: Bench) -> None:
    """ResNet-18 of torchvision on two ranks with Gloo, a thread each: `make bench NAME=training`.

    Images of 64 pixels, a global batch of 32, generated data. Both loops are in the same processes
    and take turns step by step, so that other load of the machine falls on both.

    * ms: of a step. Ours includes its data, log lines and the exchange of its status.
    """
    steps = bench.rounds(200, 10)
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run(
            [sys.executable, *TORCHRUN, "-m", "benchmarks.training_rank", *_options(folder, steps)],
            cwd=REPOSITORY,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    if ended.returncode:
        raise ProcessFailed(f"the ranks ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
    seconds: dict[str, list[float]] = json.loads(ended.stdout.splitlines()[-1])
    names = {"ours": "trainers.train", "bare": "bare DDP"}
    samples = {names[name]: [{"ms": 1000 * each} for each in seconds[name]] for name in names}
    bench.result.lines += table(samples)
    whole = sum(seconds["ours"]) / sum(seconds["bare"])
    bench.note(f"all {len(seconds['ours'])} steps: ours took {whole:.3f} of the bare loop's time")


def _options(folder: str, steps: int) -> list[str]:
    results, saved = Path(folder) / "results", Path(folder) / "saved"
    return [
        *("--dataset", "synthetic", "--synthetic-images", str(steps * BATCH)),
        *("--model", "torchvision/resnet18", "--image-size", str(SIZE), "--shift-pixels", "0"),
        *("--batch-size", str(BATCH), "--epochs", "1", "--learning-rate", "0.01"),
        *("--checkpoint-every", "1000000", "--output-dir", str(results)),
        *("--checkpoint-dir", str(saved)),
    ]
