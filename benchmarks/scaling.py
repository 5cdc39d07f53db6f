"""The gain of two processes over one, and the shares that the exchange and the machine take."""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
import uuid
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.harness import Bench, Sample
from benchmarks.ranks import RANKS, Ranks

IMAGES_OF_A_RANK = 64  # in a step


@dataclass(frozen=True)
class Work:
    """A network, the images that it is trained on, and how many steps each window has."""

    model: str
    image_size: int
    steps: int


# By compute per image, ascending; a window takes some seconds.
WORKS = (Work("resnet8", 8, 100), Work("resnet20", 8, 40), Work("resnet18", 32, 6))


def measure(bench: Bench) -> None:
    """Runs on made images, by one gloo rank of one thread and by two: `NAME=scaling`.

    * images/s alone: of one rank on 64 images a step.
    * images/s side by side: of each of two such runs at a time, which exchange nothing.
    * images/s together: of two ranks of one run on 128 images a step, with DDP.
    * efficiency %: together, of twice alone.
    * communication %: of a step's time, what the exchange adds; contention %: of a rank's speed,
      what the other one takes from it. Small ones are noise, and may be below 0.

    Each is `images_per_second` in metrics.json. The same runs on one and on several nodes show what
    more nodes bring.
    """
    with tempfile.TemporaryDirectory() as name:
        contenders = {
            f"{work.model}, {work.image_size} px": partial(_scaling, Path(name), work, bench)
            for work in WORKS
        }
        bench.compare(contenders, bench.rounds(3, 1))


def _scaling(folder: Path, work: Work, bench: Bench) -> Sample:
    steps = bench.rounds(work.steps, 2)
    [alone] = _speeds(folder, work, steps, runs=1, ranks=1)
    side_by_side = statistics.mean(_speeds(folder, work, steps, runs=2, ranks=1))
    [together] = _speeds(folder, work, steps, runs=1, ranks=RANKS)
    return {
        "images/s alone": alone,
        "images/s side by side": side_by_side,
        "images/s together": together,
        "efficiency %": 100 * together / (RANKS * alone),
        "communication %": 100 * (1 - together / (RANKS * side_by_side)),
        "contention %": 100 * (1 - side_by_side / alone),
    }


def _speeds(folder: Path, work: Work, steps: int, *, runs: int, ranks: int) -> list[float]:
    """Images/s of each of so many runs at the same time."""
    results = [folder / uuid.uuid4().hex for _ in range(runs)]
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(Ranks(_arguments(each, work, steps, ranks), ranks))
            for each in results
        ]
        for run in started:
            run.finish()
    return [
        json.loads((each / "metrics.json").read_bytes())["images_per_second"] for each in results
    ]


def _arguments(results: Path, work: Work, steps: int, ranks: int) -> list[str]:
    batch = IMAGES_OF_A_RANK * ranks
    return [
        *("-m", "trainers.train", "--dataset", "synthetic", "--epochs", "1"),
        *("--synthetic-images", str(batch * steps), "--synthetic-classes", "10"),
        *("--model", work.model, "--image-size", str(work.image_size)),
        *("--batch-size", str(batch), "--log-every", str(steps)),
        *("--output-dir", str(results), "--checkpoint-dir", str(results)),
    ]
