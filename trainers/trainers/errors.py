"""The typed failures of the training programs, each with its exit code."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

EX_DATAERR = 65  # EX_DATAERR of sysexits.h: incorrect input data
EX_STOPPED = 128 + signal.SIGTERM  # as shells report a process that SIGTERM ended
EX_FAILURE = 1
EX_HUNG = 124  # as timeout(1) reports a timeout

# About 10 MB of error.json. The next run may leave the listed files out: better list all of them.
LISTED_PROBLEMS = 50_000


@dataclass(frozen=True, kw_only=True, order=True)
class FileProblem:
    """A file of the dataset, by its path in the manifest, and the reason why it is bad."""

    path: str
    reason: str


class TrainingError(Exception):
    """A typed failure: its class name is the `type` in error.json.

    The message says what failed, where, and how to fix it. `problems` are the bad files, of
    which the first `LISTED_PROBLEMS` are kept, and `total_problems` is their number.
    """

    exit_code: ClassVar[int] = EX_FAILURE

    def __init__(self, message: str, problems: Sequence[FileProblem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems[:LISTED_PROBLEMS])
        self.total_problems = len(problems)


class DataRejected(TrainingError):
    """The dataset cannot be learned from. Permanent: the same data will fail again."""

    exit_code = EX_DATAERR


class DataChanged(TrainingError):
    """A file differs from its manifest entry. Permanent: a new manifest is needed."""

    exit_code = EX_DATAERR


class TrainingDiverged(TrainingError):
    """The loss, or a weight, is not a finite number."""


class ModelUnreadable(TrainingError):
    """A model folder is missing, damaged, or in an unknown format."""


class InitialModelMismatch(TrainingError):
    """The model of `--initial-model` has another architecture, other channels or other classes."""


class LaunchInvalid(TrainingError):
    """The run cannot start with this environment and this command line."""


class CheckpointUnwritable(TrainingError):
    """A checkpoint could not be written. The one before it is still valid."""


class PeerFailed(TrainingError):
    """Another rank died, does not respond, or failed with an exception that is no TrainingError."""


class OutOfMemory(TrainingError):
    """A device or the machine has too little memory for the settings."""


class TrainingHung(TrainingError):
    """No progress for too long. The stack files of all ranks show where each rank waits."""

    exit_code = EX_HUNG


class ExportDiffers(TrainingError):
    """The exported model answers otherwise than the trained one."""


class Stopped(TrainingError):
    """SIGTERM stopped the run after it saved a checkpoint, from which the next start resumes."""

    exit_code = EX_STOPPED
