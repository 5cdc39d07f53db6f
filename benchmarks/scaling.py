"""What two processes bring over one, and what the exchange and the machine take from it."""

from __future__ import annotations

import functools
import json
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Bench, Contender, Sample
from benchmarks.ranks import running

BATCH = 128  # global: 64 images of a rank


@dataclass(frozen=True)
class Work:
    """A network, the images that it is trained on, and how many steps each window has."""

    model: str
    image_size: int
    steps: int

    @property
    def name(self) -> str:
        """As the table has it."""
        return f"{self.model}, {self.image_size} px"


# From the least to the most that is computed for each image; some seconds a window.
WORKS = (Work("resnet8", 8, 100), Work("resnet20", 8, 40), Work("resnet18", 32, 6))


def measure(bench: Bench) -> None:
    r"""`--measure-scaling` on made images, 2 gloo ranks of one thread, batch 128: `NAME=scaling`.

    A row is what this command leaves in report.json, `speed.scaling`:

        OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 2 -m trainers.train \
            --dataset synthetic --synthetic-images 128 --synthetic-classes 10 --epochs 1 \
            --model resnet8 --image-size 8 --batch-size 128 --measure-scaling 100 \
            --output-dir build/scaling --checkpoint-dir build/scaling

    * images/s alone: of one rank on 64 images a step, while the other one waits.
    * images/s side by side: of each of two such ranks at a time that do not exchange anything.
    * images/s together: of both, with DDP.
    * efficiency %: together, of twice alone.
    * communication %: of a step's time, what the exchange adds; contention %: of a rank's speed,
      what the other one takes from it. Small ones are noise, and may be below 0.
    """
    with tempfile.TemporaryDirectory() as name:
        bench.compare(
            [
                Contender(work.name, functools.partial(_scaling, Path(name), work, bench))
                for work in WORKS
            ],
            bench.rounds(3, 1),
        )


def _scaling(folder: Path, work: Work, bench: Bench) -> Sample:
    results = folder / uuid.uuid4().hex
    with running(_arguments(results, work, bench.rounds(work.steps, 2))) as ranks:
        ranks.finish()
    scaling = json.loads((results / "report.json").read_bytes())["speed"]["scaling"]
    return {
        "images/s alone": scaling["images_per_second_alone"],
        "images/s side by side": scaling["images_per_second_side_by_side_per_device"],
        "images/s together": scaling["images_per_second_together"],
        "efficiency %": 100 * scaling["efficiency"],
        "communication %": 100 * scaling["communication_fraction"],
        "contention %": 100 * scaling["contention_fraction"],
    }


def _arguments(results: Path, work: Work, steps: int) -> list[str]:
    return [
        *("-m", "trainers.train", "--dataset", "synthetic", "--epochs", "1"),
        *("--synthetic-images", str(BATCH), "--synthetic-classes", "10"),
        *("--model", work.model, "--image-size", str(work.image_size)),
        *("--batch-size", str(BATCH), "--measure-scaling", str(steps)),
        *("--output-dir", str(results), "--checkpoint-dir", str(results)),
    ]
