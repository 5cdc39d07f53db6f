"""What less frequent synchronisation costs in loss and accuracy, and saves in bytes."""

from __future__ import annotations

import statistics

from benchmarks.harness import Bench, Line, Spread
from benchmarks.recipes import COMMON, RECIPE, train
from trainers.plugins import build_network

_STEPS = 600
_PART = 100  # steps over which losses are averaged: those of single batches differ much
_BYTES = 4  # of a weight
_LAUNCHER = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def measure(bench: Bench) -> None:
    """Local SGD beside DDP on two ranks, with the MiB exchanged: `make bench NAME=local-steps`.

    Loss, accuracy, and the MiB that each rank gives to all-reduce. The images and the recipe are
    those of the benchmark `recipes`, seed 0. DDP exchanges gradients in each step;
    `--average-every N` weights and momentum after N steps. Bytes are counted from these, not
    measured.
    """
    network = build_network("resnet8", channels=3, classes=10, size=16)
    weights = sum(weight.numel() for weight in network.parameters()) * _BYTES / 2**20
    for every in (None, 4, 16):
        name = "DDP" if every is None else f"--average-every {every}"
        bench.say(f"{bench.result.name}: {name}")
        further = () if every is None else ("--average-every", str(every))
        shorter = ("--epochs", "4") if bench.is_quick else ()
        options = (*COMMON, *RECIPE, *shorter, *further, "--checkpoint-every", "600")
        metrics, report = train(*options, launcher=_LAUNCHER)
        losses = {point["step"]: point["loss"] for point in report["curve"]["train"]}
        # They also meet at the end.
        given = weights * (_STEPS if every is None else 2 * -(-_STEPS // every))
        parts = [
            statistics.mean(loss for step, loss in losses.items() if (step - 1) // _PART == part)
            for part in range((max(losses) - 1) // _PART + 1)
        ]
        shown = " ".join(f"{loss:.3f}" for loss in parts)
        bench.note(f"{name}: mean loss of each {_PART} steps: {shown}")
        values = {"accuracy %": 100 * metrics["accuracy"], f"MiB in {_STEPS} steps": given}
        bench.result.lines += [
            Line(metric, name, Spread.of([value]), None) for metric, value in values.items()
        ]
