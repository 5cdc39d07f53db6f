"""Checkpoints: found whole or not at all, and only by the run that they belong to.

A checkpoint is two files in one folder, written in this order, each atomically:

    step-00000040-1f0c2d9a.pt     torch.save of model, optimizer (loaded with weights_only)
    step-00000040-1f0c2d9a.json   the commit record: step, run and the SHA-256 of the .pt file

Without its record a checkpoint does not exist; with another hash it is corrupt. This holds where
rename is not atomic, too, as on a mounted blob container. The eight digits are of the run's
fingerprint, so that runs with other settings keep apart.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trainers.files import TEMPORARY_SUFFIX, write_atomically, write_json_atomically

# The newest, and one to fall back on should it be damaged.
KEPT = 2
_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class RunIdentity:
    """What a checkpoint must have been made with to be resumed from."""

    dataset_version: str
    data_fingerprint: str
    settings_fingerprint: str
    seed: int

    def fingerprint(self) -> str:
        """A hash of all of it."""
        return hashlib.sha256(json.dumps(dataclasses.asdict(self)).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Found:
    """A checkpoint that is whole: the steps done, and the content for `load_state`."""

    step: int
    payload: bytes


class CheckpointFolder:
    """The checkpoints of one run in a folder that may hold others'. Used by rank 0 only."""

    def __init__(self, folder: Path, identity: RunIdentity, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._identity = identity
        self._suffix = identity.fingerprint()[:8]
        self._say = say

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Save `state` after `step` steps; older checkpoints of this run but one are removed."""
        stream = io.BytesIO()
        torch.save(state, stream)
        payload = stream.getvalue()
        record = self._record(step)
        write_atomically(record.with_suffix(".pt"), payload)
        write_json_atomically(
            record,
            {
                "format": _FORMAT,
                "step": step,
                "sha256": hashlib.sha256(payload).hexdigest(),
                **dataclasses.asdict(self._identity),
            },
        )
        self._sweep()
        self._say(f"checkpoint step {step}")

    def newest(self) -> Found | None:
        """The newest checkpoint of this run that is whole. Says what it passes over, and why."""
        for record in sorted(self._folder.glob("step-*.json"), reverse=True):
            outcome = self._read(record)
            if isinstance(outcome, Found):
                return outcome
            self._say(f"warning: checkpoint {record.stem} passed over: {outcome}")
        return None

    def _record(self, step: int) -> Path:
        return self._folder / f"step-{step:08d}-{self._suffix}.json"

    def _read(self, record: Path) -> Found | str:
        try:
            value = json.loads(record.read_bytes())
            if value["format"] != _FORMAT:
                return f"its format is {value['format']!r}, not {_FORMAT}"
            mine = dataclasses.asdict(self._identity)
            other = [name for name in mine if value[name] != mine[name]]
            if other:
                return f"it is of another run: {', '.join(other)} differ"
            payload = record.with_suffix(".pt").read_bytes()
            if hashlib.sha256(payload).hexdigest() != value["sha256"]:
                return "corrupt: its content is not what its record says"
            return Found(step=int(value["step"]), payload=payload)
        except (OSError, ValueError, KeyError, TypeError) as error:
            return f"corrupt: {type(error).__name__}: {error}"

    def _sweep(self) -> None:
        mine = sorted(self._folder.glob(f"step-*-{self._suffix}.json"), reverse=True)
        kept = {record.stem for record in mine[:KEPT]}
        for record in mine[KEPT:]:
            record.unlink(missing_ok=True)  # first, so that none is left without its content
        for path in self._folder.glob(f"step-*-{self._suffix}.*"):
            if path.name.endswith(TEMPORARY_SUFFIX) or path.stem not in kept:
                path.unlink(missing_ok=True)


def load_state(payload: bytes, device: torch.device) -> dict[str, Any]:
    """The state that was saved. Tensors and plain values only: nothing is unpickled into code."""
    return torch.load(io.BytesIO(payload), map_location=device, weights_only=True)
