"""Real processes on real images: ranks in the environments of Azure ML, mpirun and torchrun.

They are forked; tests/end_to_end/test_crash.py has a job that starts them by its command.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import runpy
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

import trainers.train
from localazure.processes.ports import free_ports
from tests.local.trainers.forked_ranks import (
    ForkedRanks,
    context,
    losses,
    run_rank,
    run_torchrun,
)
from tests.unit.trainers.small_datasets import freeze

REPOSITORY = Path(__file__).parents[3]
MPIRUN = Path(sys.executable).with_name("mpirun")
MPI_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": os.environ.get("HOME", "/"),
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


# The losses of a run's first steps in the file that the test names, as one x86-64 machine had them
# with torch 2.13: kernels for other vector units add up in another order, and steps amplify that. A
# change beyond the tolerance is a change of what is trained: say why in the commit that renews it.
GOLDEN_TOLERANCE = 1e-3


def assert_golden(losses: dict[int, float], file: str) -> None:
    """Assert that the first losses are those in the file beside this one."""
    document = json.loads(Path(__file__).with_name(file).read_bytes())
    golden = {int(step): loss for step, loss in document.items()}
    assert {step: losses[step] for step in golden} == pytest.approx(golden, rel=GOLDEN_TOLERANCE)


@dataclass(kw_only=True)
class Outputs:
    """The outputs of a run, in its folder."""

    folder: Path

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def weights(self) -> bytes:
        return (self.results / "model" / "model.safetensors").read_bytes()

    def result(self, name: str) -> dict[str, Any]:
        return json.loads((self.results / f"{name}.json").read_bytes())

    def without_checkpoint(self, step: int) -> Path:
        """Return the folder in the state of a run that was killed before it saved this step."""
        next(self.checkpoints.glob(f"step-{step:08d}-*.json")).unlink()
        return self.folder

    def copied_without_checkpoint(self, step: int, folder: Path) -> Path:
        """Do the same with a copy of the checkpoints."""
        shutil.copytree(self.checkpoints, folder / "checkpoints")
        return Outputs(folder=folder).without_checkpoint(step)


@dataclass(kw_only=True)
class Job(Outputs):
    """One run's folders, and the command line that trains on them."""

    data: Path
    manifest: Path
    epochs: int = 12
    further: list[str] = field(default_factory=list)

    def arguments(self) -> list[str]:
        return [
            *("--data", str(self.data)),
            *("--manifest", str(self.manifest)),
            *("--output-dir", str(self.results)),
            *("--checkpoint-dir", str(self.checkpoints)),
            *("--image-size", "8", "--image-mode", "grey", "--shift-pixels", "1"),
            *("--epochs", str(self.epochs), "--batch-size", "32", "--learning-rate", "0.05"),
            *("--checkpoint-every", "20", "--log-every", "1", "--peer-timeout-seconds", "60"),
            *self.further,
        ]


Fork = Callable[..., ForkedRanks]


# See docs/trainers.md, "Restarts inside a job".
ELASTIC_VARIABLES = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def elastic_node(node: int, nodes: int, port: str) -> list[str]:
    """Options of a node: torchrun continues with fewer nodes if some are lost for good."""
    rendezvous = {
        "is_host": "true" if node == 0 else "false",
        "last_call_timeout": "2",
        "keep_alive_interval": "1",
        "keep_alive_max_attempt": "3",
    }
    return [
        *(f"--nnodes=1:{nodes}", "--nproc-per-node=1"),
        *("--max-restarts=3", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}"),
        *("--rdzv-conf", ",".join(f"{key}={value}" for key, value in rendezvous.items())),
    ]


@dataclass(kw_only=True)
class Outcome(Outputs):
    """The training of two forked ranks, and the folder of its outputs."""

    seen: str
    logs: list[Path]

    @property
    def losses(self) -> dict[int, float]:
        return losses(self.seen)

    def losses_after(self, step: int) -> dict[int, float]:
        return {later: loss for later, loss in self.losses.items() if later > step}


Train = Callable[..., Outcome]


def on_synthetic_images(folder: Path, options: tuple[str, ...]) -> list[str]:
    """The command line of eight steps on 8x8 synthetic images, with further options."""
    return [
        *("--dataset", "synthetic", "--synthetic-images", "64", "--synthetic-classes", "4"),
        *("--output-dir", str(folder / "results")),
        *("--checkpoint-dir", str(folder / "checkpoints")),
        *("--image-size", "8", "--image-mode", "grey", "--epochs", "2", "--batch-size", "16"),
        *("--shift-pixels", "1"),
        *("--log-every", "1", "--peer-timeout-seconds", "60", "--learning-rate", "0.05"),
        *options,
    ]


@pytest.fixture
def refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Train:
    """Run a command line that fails before the first step, in this process, as one rank."""

    def refuse(*options: str, code: int = 1) -> Outcome:
        folder = tmp_path / "refused"
        try:
            assert trainers.train.main(on_synthetic_images(folder, options)) == code
        finally:
            torch.use_deterministic_algorithms(mode=False)  # as in pytest's process
        return Outcome(folder=folder, seen=capsys.readouterr().out, logs=[])

    return refuse


@pytest.fixture(scope="session")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fork]:
    """Run a function in a process for each of its arguments; none is left in the end."""
    started: list[BaseProcess] = []

    def forked(run: Callable[..., None], *each: tuple[Any, ...], **how: Any) -> ForkedRanks:
        folder = tmp_path_factory.mktemp("logs")
        logs = [folder / f"{number}.log" for number in range(len(each))]
        processes: list[BaseProcess] = [
            context().Process(target=run, args=(*arguments, log), kwargs=how)
            for arguments, log in zip(each, logs, strict=True)
        ]
        started.extend(processes)
        for process in processes:
            process.start()
        return ForkedRanks(processes=processes, logs=logs)

    yield forked
    for process in started:
        if process.is_alive():
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
            process.kill()
            process.join()


@pytest.fixture(scope="session")
def fork(forked: Fork) -> Fork:
    """Run a command line of the trainer in forked ranks."""

    def fork(
        arguments: list[str],
        *,
        ranks: int = 1,
        further: dict[str, str] | None = None,
        double: bool = False,
    ) -> ForkedRanks:
        port = str(free_ports(1)[0])
        environments = [variables(rank, ranks, port) for rank in range(ranks)]
        of_all = further or {}
        return forked(
            run_rank, *((arguments, each | of_all) for each in environments), double=double
        )

    return fork


@pytest.fixture(scope="session")
def torchrun(forked: Fork) -> Fork:
    """Run a job by torchrun on as many nodes as there are options."""

    def torchrun(job: Job, *nodes: list[str], further: dict[str, str] | None = None) -> ForkedRanks:
        of_all = further or {}
        return forked(run_torchrun, *((options, job.arguments(), of_all) for options in nodes))

    return torchrun


@pytest.fixture(scope="session")
def train(fork: Fork, tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Train on 8x8 synthetic images with further options, in forked ranks (two by default)."""

    def train(
        *options: str, ranks: int = 2, folder: Path | None = None, code: int = 0, **how: Any
    ) -> Outcome:
        folder = folder or tmp_path_factory.mktemp("forked")
        forked = fork(on_synthetic_images(folder, options), ranks=ranks, **how)
        forked.ended(*[code] * ranks)
        return Outcome(folder=folder, seen=forked.seen, logs=forked.logs)

    return train


def variables(rank: int, size: int, port: str) -> dict[str, str]:
    """The environment that Azure ML's PyTorch distribution gives its ranks."""
    if size == 1:
        return {}
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }


def make_digits(folder: Path, *options: str) -> Path:
    """Run the example's program in this process, which imports scikit-learn once."""
    program = REPOSITORY / "pipelines" / "digits" / "make_dataset.py"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(program), str(folder), *options])
        runpy.run_path(str(program), run_name="__main__")
    return folder


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 digits in labelled folders."""
    return make_digits(tmp_path_factory.mktemp("digits"), "--limit", "300")


@pytest.fixture(scope="session")
def manifest(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return freeze(digits, tmp_path_factory.mktemp("manifest"))


@pytest.fixture
def job(digits: Path, manifest: Path, tmp_path: Path) -> Job:
    return Job(data=digits, manifest=manifest, folder=tmp_path)


@pytest.fixture(scope="session")
def undisturbed(
    digits: Path, manifest: Path, fork: Fork, tmp_path_factory: pytest.TempPathFactory
) -> Outcome:
    """The run of `job` on two ranks, from the first step to the last."""
    job = Job(data=digits, manifest=manifest, folder=tmp_path_factory.mktemp("undisturbed"))
    ranks = fork(job.arguments(), ranks=2).ended(0, 0)
    return Outcome(folder=job.folder, seen=ranks.seen, logs=ranks.logs)


@pytest.fixture
def altered_job(job: Job, tmp_path: Path) -> Callable[..., Job]:
    """The job on data in which some files have other content, or (None) are missing.

    `frozen`: the manifest is of the altered data, not of what it was before.
    """

    def alter(changes: dict[str, bytes | None], *, frozen: bool) -> Job:
        data = tmp_path / "altered"
        shutil.copytree(job.data, data)
        for path, content in changes.items():
            if content is None:
                (data / path).unlink()
            else:
                (data / path).write_bytes(content)
        manifest = freeze(data, tmp_path / "altered-manifest") if frozen else job.manifest
        return dataclasses.replace(job, data=data, manifest=manifest)

    return alter


@pytest.fixture
def champion_of_few_classes(digits: Path, fork: Fork, tmp_path: Path) -> Path:
    """A model that was trained on the digits 0, 1 and 2."""
    data = tmp_path / "few"
    for label in ("0", "1", "2"):
        shutil.copytree(digits / label, data / label)
    manifest = freeze(data, tmp_path / "few-manifest")
    job = Job(data=data, manifest=manifest, folder=tmp_path / "few-", epochs=8)
    fork(job.arguments()).ended(0)
    return job.results / "model"
