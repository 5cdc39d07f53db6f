"""The trainer against a bare DDP loop, and what starts, checkpoints and kills cost."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Bench, Contender, Sample
from benchmarks.host_process import REPOSITORY, free_port

RANKS = 2
BATCH = 64
STEPS_PER_EPOCH = 22  # of 1,797 digits less those held out; only the sum of work matters
NEVER = 1_000_000
STEP_LINE = re.compile(r"^step (\d+)/")
CHECKPOINT_LINE = re.compile(r"^checkpoint step (\d+)")


class RanksFailed(Exception):
    """Training ended when it should not have; the message holds the end of its output."""


def measure(bench: Bench) -> None:
    """ResNet-8 on 8x8 digits, 2 gloo ranks of one thread, global batch 64: `NAME=trainers`.

    * images/s of `trainers.train` (without augmentation and checkpoints) against `benchmarks.
      bare_ddp`: same model, batch and optimizer; from the first to the last step.
    * first step s: from the start of both processes to the line that tells of step 1.
    * checkpoint ms: what one costs a run, from the times of runs with and without one each 5 steps.
    * after kill -9 s: rank 1 is killed, rank 0 ends by itself or is killed too, both are started
      again; from the kill to the first step beyond the checkpoint.
    """
    with tempfile.TemporaryDirectory() as name:
        data = Dataset.make(Path(name) / "data")
        epochs = bench.rounds(15, 3)
        rounds = bench.rounds(5, 1)
        work = Path(name) / "work"
        bench.compare(
            [
                Contender("trainers.train", lambda: _trainer_speed(data, work, epochs)),
                Contender("bare DDP loop", lambda: _bare_speed(data, epochs)),
            ],
            rounds,
        )
        bench.compare(
            [
                Contender("trainers.train", lambda: _launch(data, work)),
                Contender("bare DDP loop", lambda: _bare_launch(data)),
            ],
            rounds,
        )
        bench.compare(
            [Contender("trainers.train", lambda: _checkpoint(data, work, epochs))], rounds
        )
        bench.compare([Contender("trainers.train", lambda: _kill(data, work))], rounds)


@dataclass(frozen=True)
class Dataset:
    """Images and their manifest."""

    images: Path
    manifest: Path

    @classmethod
    def make(cls, folder: Path) -> Dataset:
        """scikit-learn's digits, frozen as Landfall freezes what landed."""
        images = folder / "images"
        program = REPOSITORY / "pipelines" / "digits" / "make_dataset.py"
        runpy.run_path(str(program))["make_dataset"](images, limit=None)
        lines = [
            json.dumps(
                {
                    "path": file.relative_to(images).as_posix(),
                    "size": file.stat().st_size,
                    "md5": hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest(),
                    "etag": "0x1",
                }
            )
            for file in sorted(images.glob("*/*.png"))
        ]
        manifest = folder / "manifest.jsonl"
        manifest.write_text("\n".join(lines) + "\n")
        return cls(images, manifest)


class Ranks:
    """Processes that train together; only rank 0 speaks."""

    def __init__(self, arguments: Sequence[str]) -> None:
        port = str(free_port())
        self.began = time.monotonic()
        self.processes = [
            subprocess.Popen(
                [sys.executable, *arguments],
                cwd=REPOSITORY,
                env={
                    **os.environ,
                    "RANK": str(rank),
                    "WORLD_SIZE": str(RANKS),
                    "LOCAL_RANK": str(rank),
                    "LOCAL_WORLD_SIZE": str(RANKS),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": port,
                    "OMP_NUM_THREADS": "1",
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(RANKS)
        ]
        self.said = ""

    def read_until(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Read rank 0's lines until one matches."""
        output = self.processes[0].stdout
        assert output is not None
        for line in output:
            self.said += line
            if match := pattern.search(line):
                return match
        raise RanksFailed(f"no line matches {pattern.pattern}:\n{self.said[-2000:]}")

    def finish(self) -> str:
        """Wait for the end; what rank 0 said."""
        for process in self.processes:
            output, _ = process.communicate()
            if process is self.processes[0]:
                self.said += output
            if process.returncode:
                raise RanksFailed(f"exit code {process.returncode}:\n{self.said[-2000:]}{output}")
        return self.said

    def kill(self) -> None:
        """End whatever is left of them."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@contextlib.contextmanager
def _ranks(arguments: Sequence[str]) -> Generator[Ranks]:
    ranks = Ranks(arguments)
    try:
        yield ranks
    finally:
        ranks.kill()


def _trainer(
    data: Dataset, folder: Path, epochs: int, *, checkpoint_every: int, log_every: int
) -> list[str]:
    return [
        *("-m", "trainers.train"),
        *("--data", str(data.images), "--manifest", str(data.manifest)),
        *("--output-dir", str(folder / "results"), "--checkpoint-dir", str(folder / "checkpoints")),
        *("--image-size", "8", "--image-mode", "grey", "--architecture", "resnet8"),
        *("--epochs", str(epochs), "--batch-size", str(BATCH), "--learning-rate", "0.05"),
        *("--shift-pixels", "0", "--peer-timeout-seconds", "60"),
        *("--checkpoint-every", str(checkpoint_every), "--log-every", str(log_every)),
    ]


def _metrics(data: Dataset, work: Path, epochs: int, checkpoint_every: int) -> dict[str, float]:
    folder = work / uuid.uuid4().hex
    arguments = _trainer(data, folder, epochs, checkpoint_every=checkpoint_every, log_every=NEVER)
    with _ranks(arguments) as ranks:
        ranks.finish()
    return json.loads((folder / "results" / "metrics.json").read_text())


def _trainer_speed(data: Dataset, work: Path, epochs: int) -> Sample:
    return {"images/s": _metrics(data, work, epochs, NEVER)["images_per_second"]}


def _bare(data: Dataset, steps: int) -> list[str]:
    arguments = (str(data.images), str(data.manifest), str(steps), str(BATCH))
    return ["-m", "benchmarks.bare_ddp", *arguments]


def _bare_speed(data: Dataset, epochs: int) -> Sample:
    with _ranks(_bare(data, epochs * STEPS_PER_EPOCH)) as ranks:
        said = ranks.finish()
    found = re.search(r"images/s (\S+)", said)
    if found is None:
        raise RanksFailed(f"the bare loop told no speed:\n{said[-2000:]}")
    return {"images/s": float(found[1])}


def _launch(data: Dataset, work: Path) -> Sample:
    folder = work / uuid.uuid4().hex
    with _ranks(_trainer(data, folder, 1, checkpoint_every=NEVER, log_every=1)) as ranks:
        ranks.read_until(STEP_LINE)
        return {"first step s": time.monotonic() - ranks.began}


def _bare_launch(data: Dataset) -> Sample:
    with _ranks(_bare(data, 1)) as ranks:
        ranks.read_until(re.compile("images/s"))
        return {"first step s": time.monotonic() - ranks.began}


def _checkpoint(data: Dataset, work: Path, epochs: int) -> Sample:
    without = _metrics(data, work, epochs, NEVER)
    with_them = _metrics(data, work, epochs, 5)
    # Of both runs the last step is saved; only the one has the others.
    checkpoints = with_them["steps"] // 5
    lost_seconds = with_them["train_seconds"] - without["train_seconds"]
    return {"checkpoint ms": 1000 * lost_seconds / checkpoints}


def _kill(data: Dataset, work: Path) -> Sample:
    folder = work / uuid.uuid4().hex
    arguments = _trainer(data, folder, 50, checkpoint_every=20, log_every=1)
    with _ranks(arguments) as ranks:
        while int(ranks.read_until(CHECKPOINT_LINE)[1]) < 2 * 20:  # the second one
            pass
        killed = time.monotonic()
        ranks.processes[1].send_signal(signal.SIGKILL)
        noticed_seconds = _wait_for_end(ranks.processes[0], killed)
    with _ranks(arguments) as ranks:
        ranks.read_until(re.compile("^resumed from step"))
        ranks.read_until(STEP_LINE)
        return {
            "rank 0 notices the kill of rank 1, s": noticed_seconds,
            "first step after kill -9, s": time.monotonic() - killed,
        }


def _wait_for_end(process: subprocess.Popen[str], since: float) -> float:
    # Its output has to be read meanwhile, lest it blocks on a full pipe.
    process.communicate()
    return time.monotonic() - since
