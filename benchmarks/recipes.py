"""What the options of a recipe are worth, on small images of a known difficulty."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.harness import Bench, ProcessFailed, Sample
from trainers.data.dataset import Dataset, DatasetRequest
from trainers.data.images import Samples

CLASSES, TRAIN, HELD_OUT = 10, 1000, 2000
WRONG_LABELS = 0.15
_WHOLE, _LEAST, _SIZE = 32, 14, 16  # pixels: of a pattern, of the least part of it, of an image
_NOISE = 0.5
COMMON = (
    *("--dataset", "benchmarks.recipes:dataset", "--image-size", str(_SIZE)),
    *("--epochs", "30", "--batch-size", "50", "--learning-rate", "0.05"),
)
PLAIN = (
    *("--shift-pixels", "0", "--schedule", "constant", "--warm-up-epochs", "1e-4"),
    *("--weight-decay", "0"),
)
RECIPE = (
    *("--crop-area", "0.4", "--schedule", "cosine", "--warm-up-epochs", "3"),
    *("--weight-decay", "5e-4", "--label-smoothing", "0.1"),
)


def dataset(request: DatasetRequest) -> Dataset:
    """Parts of ten random patterns in colour: anywhere, 14 to 32 pixels large, mirrored, in noise.

    15 % of the labels to train on are drawn at random; those of the held-out images are right.
    """
    del request
    draws = torch.Generator().manual_seed(7)
    coarse = torch.randn(CLASSES, 3, 8, 8, generator=draws)
    patterns = functional.interpolate(coarse, _WHOLE, mode="bicubic")
    labels = torch.randint(CLASSES, (TRAIN + HELD_OUT,), generator=draws)
    inputs = torch.stack([_part(patterns[label], draws) for label in labels])
    learned = labels[:TRAIN].clone()
    wrong = torch.rand(TRAIN, generator=draws) < WRONG_LABELS
    learned[wrong] = torch.randint(CLASSES, (int(wrong.sum()),), generator=draws)
    held_out = Samples(inputs=inputs[TRAIN:], labels=labels[TRAIN:])
    return Dataset(
        version="patterns",
        classes=tuple(str(number) for number in range(CLASSES)),
        train=Samples(inputs=inputs[:TRAIN], labels=learned),
        held_out=held_out,
        held_out_as=lambda _: held_out,
        fingerprint="patterns",
    )


def _part(pattern: Tensor, draws: torch.Generator) -> Tensor:
    side, mirror = (
        torch.randint(_LEAST, _WHOLE + 1, (), generator=draws),
        torch.rand((), generator=draws),
    )
    top, left = torch.randint(_WHOLE - int(side) + 1, (2,), generator=draws).tolist()
    part = pattern[None, :, top : top + int(side), left : left + int(side)]
    part = functional.interpolate(part, _SIZE, mode="bilinear", antialias=True)[0]
    part = part.flip(-1) if mirror < 1 / 2 else part
    noisy = part + _NOISE * torch.randn(part.shape, generator=draws)
    return (noisy * 40 + 128).clamp(0, 255).to(torch.uint8)


def measure(bench: Bench) -> None:
    """Accuracy after 30 epochs on 1,000 images, by a recipe's options: `make bench NAME=recipes`.

    Of 2,000 held-out images: plain, and with more options.

    ResNet-8, images of 16 pixels, seeds 0, 1, 2. Plain: the same rate in every step, nothing else.
    The recipe: random crops and mirror images, label smoothing, warm-up and cosine, weight decay
    that leaves out norms and biases.
    """
    seeds = range(bench.rounds(full=3, quick=1))
    accuracies: dict[str, list[float]] = {"recipe": [], "plain": []}

    def turn(name: str, options: tuple[str, ...]) -> Sample:
        seed = len(accuracies[name])
        epochs = ("--epochs", "4") if bench.is_quick else ()
        metrics, _ = train(*COMMON, *options, *epochs, "--seed", str(seed))
        accuracies[name].append(metrics["accuracy"])
        return {"accuracy %": 100 * accuracies[name][-1]}

    contenders = {"recipe": RECIPE, "plain": PLAIN}
    bench.compare(
        {name: functools.partial(turn, name, options) for name, options in contenders.items()},
        rounds=len(seeds),
    )
    for seed, with_recipe, plain in zip(seeds, *accuracies.values(), strict=True):
        margin = 100 * (with_recipe - plain)
        bench.note(f"seed {seed}: {with_recipe:.1%} with it, {plain:.1%} plain, {margin:+.1f}")


def train(*options: str, launcher: tuple[str, ...] = ()) -> tuple[dict[str, float], dict[str, Any]]:
    """Train in processes of one thread; return metrics.json and report.json."""
    with tempfile.TemporaryDirectory() as folder:
        folders = ("--output-dir", folder, "--checkpoint-dir", folder)
        ended = subprocess.run(
            [sys.executable, *launcher, "-m", "trainers.train", *options, *folders],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            raise ProcessFailed(ended.stderr)
        metrics, report = (Path(folder) / f"{name}.json" for name in ("metrics", "report"))
        return json.loads(metrics.read_text()), json.loads(report.read_text())
