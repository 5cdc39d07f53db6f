"""Checkpoints. Incomplete ones are ignored; a run loads only its own.

A checkpoint is a folder and a file with its name, written in this order:

    step-00000040-1f0c2d9a/        the state, see `trainers.checkpointing.sharded_state`
    step-00000040-1f0c2d9a.json    the commit record: step, run, and the SHA-256 of each file

A checkpoint without a record is ignored. A file whose hash differs from the record is corrupt.
Both rules also hold where rename is not atomic, as on a mounted blob container. The eight hex
digits are the start of the run's fingerprint: they separate runs with different settings.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainers.files import TEMPORARY_SUFFIX, write_json_atomically

# The newest checkpoint, and the one before it in case the newest is damaged.
KEPT = 2
_FORMAT = 4


@dataclass(frozen=True, kw_only=True)
class RunIdentity:
    """The inputs of a run. A run resumes only from checkpoints with the same inputs."""

    dataset_version: str
    data_fingerprint: str
    settings_fingerprint: str
    network_fingerprint: str  # the code behind a dotted path may change
    seed: int
    initial_weights: str = ""  # SHA-256 of a warm start's weights; empty for random weights

    def fingerprint(self) -> str:
        """Return the SHA-256 of all fields, in hex."""
        return hashlib.sha256(json.dumps(dataclasses.asdict(self)).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A committed checkpoint: the number of completed steps, and file name → SHA-256 in hex."""

    step: int
    files: Mapping[str, str]


class CheckpointFolder:
    """The checkpoints of one run, in a folder that may also hold those of other runs.

    Rank 0 commits and lists. Every rank writes to and reads from the folder that `content` returns.
    """

    def __init__(self, folder: Path, identity: RunIdentity, log: Callable[[str], None]) -> None:
        self._folder = folder
        self._identity = identity
        self._suffix = identity.fingerprint()[:8]
        self._log = log

    def content(self, step: int) -> Path:
        """Return the folder for the state after `step` steps."""
        return self._record(step).with_suffix("")

    def commit(self, checkpoint: Checkpoint) -> None:
        """Write the record; remove all checkpoints of this run but this one and the one before.

        Checkpoints of later steps are removed, too: the run skipped them as damaged when it
        resumed, and the next start would try them first.
        """
        about = dataclasses.asdict(self._identity) | dataclasses.asdict(checkpoint)
        newest = self._record(checkpoint.step)
        write_json_atomically(newest, {"format": _FORMAT, **about})
        mine = sorted(self._folder.glob(f"step-*-{self._suffix}.json"), reverse=True)
        kept = {record.stem for record in [each for each in mine if each <= newest][:KEPT]}
        for record in mine:
            if record.stem not in kept:
                record.unlink(missing_ok=True)  # first: no record without content
        for path in self._folder.glob(f"step-*-{self._suffix}*"):
            if path.name.endswith(TEMPORARY_SUFFIX):
                path.unlink(missing_ok=True)
            elif path.is_dir() and path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)
        self._log(f"checkpoint step {checkpoint.step}")

    def committed(self) -> list[Checkpoint]:
        """The checkpoints of this run, newest first. Logs each invalid one with the reason."""
        found: list[Checkpoint] = []
        for record in sorted(self._folder.glob("step-*.json"), reverse=True):
            outcome = self._read(record)
            if isinstance(outcome, Checkpoint):
                found.append(outcome)
            else:
                self.skip(record.stem, outcome)
        return found

    def damage(self, checkpoint: Checkpoint, *, part: int = 0, parts: int = 1) -> str | None:
        """Verify every `parts`-th file of a checkpoint; return what is damaged, or None."""
        for name in sorted(checkpoint.files)[part::parts]:
            try:
                if sha256_of(self.content(checkpoint.step) / name) != checkpoint.files[name]:
                    return f"corrupt: {name} differs from its record"
            except OSError as error:
                return f"corrupt: {type(error).__name__}: {error}"
        return None

    def skip(self, name: str, reason: str) -> None:
        """Log that the checkpoint of this name is skipped."""
        self._log(f"warning: checkpoint {name} skipped: {reason}")

    def _record(self, step: int) -> Path:
        return self._folder / f"step-{step:08d}-{self._suffix}.json"

    def _read(self, record: Path) -> Checkpoint | str:
        try:
            value = json.loads(record.read_bytes())
            if value["format"] != _FORMAT:
                return f"its format is {value['format']!r}, not {_FORMAT}"
            mine = dataclasses.asdict(self._identity)
            other = [name for name in mine if value[name] != mine[name]]
            if other:
                return f"it is of another run: {', '.join(other)} differ"
            checkpoint = Checkpoint(step=int(value["step"]), files=dict(value["files"]))
            if not checkpoint.files:
                return "corrupt: its record names no files"
            if record != self._record(checkpoint.step):
                return f"corrupt: its record has step {checkpoint.step}"
        except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            return f"corrupt: {type(error).__name__}: {error}"
        return checkpoint


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
