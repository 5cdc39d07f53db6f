"""The typed failures of the training programs, each with its exit code."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

EX_DATAERR = 65  # sysexits.h: the input data was incorrect in some way
EX_STOPPED = 128 + signal.SIGTERM  # what a shell reports for a process that SIGTERM ended
EX_FAILURE = 1
EX_HUNG = 124  # what timeout(1) reports for a program that took too long

# Of error.json, some 10 MB: the next run may leave these files out, so the list should be complete.
LISTED_PROBLEMS = 50_000


@dataclass(frozen=True, kw_only=True)
class FileProblem:
    """One file of the dataset, by its path in the manifest, and what is wrong with it."""

    path: str
    reason: str


class TrainingError(Exception):
    """A typed failure: its class name is the `type` in error.json.

    Its message names what, where, and how to fix it. `problems` are the files concerned, of which
    the first `LISTED_PROBLEMS` are kept; `total_problems` is their number if it is an excerpt.
    """

    exit_code: ClassVar[int] = EX_FAILURE

    def __init__(
        self,
        message: str,
        problems: Sequence[FileProblem] = (),
        *,
        total_problems: int | None = None,
    ) -> None:
        super().__init__(message)
        self.problems = tuple(problems[:LISTED_PROBLEMS])
        self.total_problems = len(problems) if total_problems is None else total_problems


class DataRejected(TrainingError):
    """The dataset cannot be learned from. Permanent: the same data will fail again."""

    exit_code = EX_DATAERR


class DataChanged(TrainingError):
    """A file differs from its manifest entry. Permanent: a new manifest is needed."""

    exit_code = EX_DATAERR


class TrainingDiverged(TrainingError):
    """The loss is no longer a finite number."""


class ModelUnreadable(TrainingError):
    """A model folder is missing, damaged, or of a format that this version does not know."""


class InitialModelMismatch(TrainingError):
    """The model of `--initial-model` has another architecture, other channels or other classes."""


class LaunchInvalid(TrainingError):
    """The environment or the command line does not describe a run that can start."""


class CheckpointUnwritable(TrainingError):
    """A checkpoint could not be written. The one before it is still there."""


class PeerFailed(TrainingError):
    """Another rank died, does not answer, or failed with an exception that has no class here."""


class OutOfMemory(TrainingError):
    """A device or the machine has too little memory for what the settings ask for."""


class TrainingHung(TrainingError):
    """No step was done for too long. The stacks of all ranks show where each of them waits."""

    exit_code = EX_HUNG


class Stopped(TrainingError):
    """SIGTERM came. A checkpoint is saved, so that the next start goes on from here."""

    exit_code = EX_STOPPED
