"""The trainer against a bare DDP loop, and what starts and checkpoints cost."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import statistics
import tempfile
import time
import uuid
from functools import partial
from pathlib import Path

from benchmarks.child_process import REPOSITORY
from benchmarks.harness import Bench, ProcessFailed, Sample
from benchmarks.ranks import RANKS, Ranks

SHARES = (64, 32)  # images of a rank, of whose steps the loop itself takes more and more
TRAIN_IMAGES = 1433  # of 1,797 digits, less those held out
NEVER = 1_000_000
EVERY = 400  # steps, some seconds of so small a model: more often than anyone saves
SAVES = 5
STEP_LINE = re.compile(r"^step (\d+)/")


def measure(bench: Bench) -> None:
    """ResNet-8 on 8x8 digits, 2 gloo ranks of one thread: `NAME=trainers`.

    * images/s of `trainers.train` (without augmentation; with an asynchronous checkpoint each 400
      steps, and with none) against `benchmarks.bare_ddp`: same model, batch and optimizer; from
      the first to the last step; with 64 images a rank and with 32, as all that follows.
    * first step s: from the start of both processes to the log line of step 1.
    * checkpoint stall ms: how long training waits for one of ResNet-50 with momentum, 204 MB, the
      median of 5 saves of both ranks; and until it is committed.
    """
    with tempfile.TemporaryDirectory() as name:
        data = make_dataset(Path(name) / "data")
        steps = bench.rounds(880, 66)
        rounds = bench.rounds(5, 1)
        work = Path(name) / "work"
        for share in SHARES:
            speed = partial(_trainer_speed, data, work, steps, share)
            contenders = {
                "trainers.train": partial(speed, EVERY),
                "without checkpoints": partial(speed, NEVER),
                "bare DDP loop": partial(_bare_speed, data, steps, share),
            }
            bench.compare(contenders, rounds)
        launches = {
            "trainers.train": partial(_launch, data, work),
            "bare DDP loop": partial(_bare_launch, data),
        }
        bench.compare(launches, rounds)
        bench.compare({"trainers.train": partial(_checkpoint, work)}, rounds)


def make_dataset(folder: Path, limit: int | None = None) -> Path:
    """Write scikit-learn's digits to `images`, frozen as Landfall freezes them; return the folder.

    Args:
        folder: for the images and the manifest.
        limit: so many images; None for all.
    """
    make = runpy.run_path(str(REPOSITORY / "pipelines" / "digits" / "make_dataset.py"))
    make["make_dataset"](folder / "images", limit=limit)
    make["write_manifest"](folder / "images", folder)
    return folder


def _trainer(
    data: Path,
    folder: Path,
    epochs: int,
    *,
    checkpoint_every: int,
    log_every: int,
    share: int = SHARES[-1],
) -> list[str]:
    return [
        *("-m", "trainers.train"),
        *("--data", str(data / "images"), "--manifest", str(data / "manifest.jsonl")),
        *("--output-dir", str(folder / "results"), "--checkpoint-dir", str(folder / "checkpoints")),
        *("--image-size", "8", "--image-mode", "grey", "--model", "resnet8"),
        *("--epochs", str(epochs), "--batch-size", str(RANKS * share), "--learning-rate", "0.05"),
        *("--shift-pixels", "0", "--peer-timeout-seconds", "60"),
        *("--checkpoint-every", str(checkpoint_every), "--log-every", str(log_every)),
    ]


def _trainer_speed(data: Path, work: Path, steps: int, share: int, every: int) -> Sample:
    folder = work / uuid.uuid4().hex
    arguments = _trainer(
        data,
        folder,
        steps // (TRAIN_IMAGES // (RANKS * share)),
        checkpoint_every=every,
        log_every=NEVER,
        share=share,
    )
    with Ranks(arguments) as ranks:
        ranks.finish()
    metrics = json.loads((folder / "results" / "metrics.json").read_text())
    return {f"images/s, {share} a rank": metrics["images_per_second"]}


def _bare(data: Path, steps: int, share: int) -> list[str]:
    return ["-m", "benchmarks.bare_ddp", str(data), str(steps), str(RANKS * share)]


def _bare_speed(data: Path, steps: int, share: int) -> Sample:
    with Ranks(_bare(data, steps, share)) as ranks:
        said = ranks.finish()
    found = re.search(r"images/s (\S+)", said)
    if found is None:
        raise ProcessFailed(f"the bare loop printed no speed:\n{said[-2000:]}")
    return {f"images/s, {share} a rank": float(found[1])}


def _launch(data: Path, work: Path) -> Sample:
    folder = work / uuid.uuid4().hex
    with Ranks(_trainer(data, folder, 1, checkpoint_every=NEVER, log_every=1)) as ranks:
        ranks.read_until(STEP_LINE)
        return {"first step s": time.monotonic() - ranks.began}


def _bare_launch(data: Path) -> Sample:
    with Ranks(_bare(data, 1, SHARES[-1])) as ranks:
        ranks.read_until(re.compile("images/s"))
        return {"first step s": time.monotonic() - ranks.began}


def _checkpoint(work: Path) -> Sample:
    folder = work / uuid.uuid4().hex
    with Ranks(["-m", "benchmarks.checkpoint_stall", str(folder), str(SAVES)]) as ranks:
        found = json.loads(ranks.finish().splitlines()[-1])
    shutil.rmtree(folder)
    return {
        "checkpoint stall ms": 1000 * statistics.median(found["stall_seconds"]),
        "largest checkpoint stall ms": 1000 * max(found["stall_seconds"]),
        "checkpoint committed ms": 1000 * statistics.median(found["committed_seconds"]),
        "checkpoint MB": found["megabytes"],
    }
