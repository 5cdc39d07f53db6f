"""Training runs as a user starts them: `python -m trainers.train` in a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
LIMIT_SECONDS = 240
_STEP = re.compile(r"^step (\d+)/\d+ loss (\S+) images/s (\d+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A run that has ended."""

    folder: Path
    code: int
    output: str

    @property
    def losses(self) -> list[float]:
        """The losses of the logged steps."""
        return [float(loss) for _, loss, _ in _STEP.findall(self.output)]

    @property
    def steady_images_per_second(self) -> float:
        """The median of the second half of the log, after kernels were chosen and compiled."""
        rates = [float(rate) for *_, rate in _STEP.findall(self.output)]
        return statistics.median(rates[len(rates) // 2 :])

    def document(self, name: str) -> dict[str, Any]:
        """`metrics`, `report` or `error`."""
        return json.loads((self.folder / "results" / f"{name}.json").read_bytes())

    @property
    def weights(self) -> bytes:
        """The model's file of weights."""
        return (self.folder / "results" / "model" / "model.safetensors").read_bytes()


def synthetic(*, images: int, size: int, classes: int = 10) -> tuple[str, ...]:
    """Options of a dataset that needs no files."""
    return (
        *("--dataset", "synthetic", "--synthetic-images", str(images)),
        *("--synthetic-classes", str(classes), "--image-size", str(size)),
    )


def command(folder: Path, options: tuple[str, ...], launcher: tuple[str, ...] = ()) -> list[str]:
    """The command line of a run whose outputs and checkpoints are in `folder`."""
    return [
        *(sys.executable, *launcher, "-m", "trainers.train"),
        *("--output-dir", str(folder / "results"), "--checkpoint-dir", str(folder / "checkpoints")),
        *options,
    ]


def train(
    folder: Path,
    *options: str,
    code: int = 0,
    variables: Mapping[str, str] | None = None,
    launcher: tuple[str, ...] = (),
) -> Ended:
    """Train to the end.

    Args:
        folder: of this run.
        options: of the command line.
        code: the expected exit code.
        variables: added to the environment.
        launcher: Python's arguments that start the ranks; without, there is one.

    Raises:
        AssertionError: the exit code is another one.
        subprocess.TimeoutExpired: it runs for longer than `LIMIT_SECONDS`.
    """
    ended = subprocess.run(
        command(folder, options, launcher),
        cwd=REPOSITORY,
        env={**os.environ, **(variables or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    assert ended.returncode == code, ended.stdout[-4000:]
    return Ended(folder=folder, code=ended.returncode, output=ended.stdout)


def train_and_kill(folder: Path, *options: str, at: str) -> None:
    """Train until a line contains `at`; then kill -9."""
    with subprocess.Popen(
        command(folder, options), cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if at in line:
                process.send_signal(signal.SIGKILL)
                return
    raise AssertionError(f"the run ended before it printed {at!r}")
