"""Saves checkpoints while training goes on: it waits for the copy in memory, not for the storage.

One save is in progress at a time. It uses a process group of its own, so that its messages never
mix with those of the training.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from trainers.checkpointing import sharded_state
from trainers.checkpointing.checkpoints import Checkpoint, CheckpointFolder, sha256_of
from trainers.errors import CheckpointUnwritable
from trainers.files import write_atomically
from trainers.parallelism.world import World

# Rank 0's notes beside the tensors: one of the checkpoint's files, with its hash in the record.
_NOTES_NAME = "notes.json"
# A failed write makes torch report an unexpected position in its file, from this source file.
_TORCHS_WRITER = "inline_container"


@dataclass(frozen=True, kw_only=True)
class Resumed:
    """The checkpoint that was loaded: its steps, and rank 0's notes (empty on other ranks)."""

    step: int
    notes: bytes


class Saver:
    """Writes and reads the checkpoints of one run. Every rank calls the same methods."""

    def __init__(self, folder: CheckpointFolder, world: World) -> None:
        self._folder = folder
        self._world = world
        self._group: Any = None
        if world.size > 1:
            self._group = dist.new_group(backend="gloo", timeout=world.timeout)
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._staged: sharded_state.State | None = None

    def prepare(self, network: nn.Module, optimizer: Optimizer) -> None:
        """Allocate the memory for copies while training goes on, so that the first save is fast.

        Call it after the first step, when the optimizer has its state. Later calls do nothing.
        """
        if self._staged is not None or self._thread is not None:
            return
        state = sharded_state.state_of(network, optimizer)
        self._thread = threading.Thread(target=self._allocate, args=(state,), daemon=True)
        self._thread.start()

    def start(
        self, step: int, network: nn.Module, optimizer: Optimizer, notes: bytes = b""
    ) -> None:
        """Copy the state, and write it while training goes on.

        Args:
            step: the steps done.
            network: its parameters and buffers are saved.
            optimizer: its tensors are saved.
            notes: of rank 0, returned by `resume`; none if empty.

        Raises:
            CheckpointUnwritable: there was no room or permission for the save before this one.
            Exception: any other failure of it.
        """
        self.finish()
        now = sharded_state.state_of(network, optimizer)
        self._staged = state = sharded_state.staged(now, into=self._staged)
        self._thread = threading.Thread(
            target=self._save, args=(step, state, notes), name="checkpoint", daemon=True
        )
        self._thread.start()

    def finish(self) -> None:
        """Wait until the last save is done.

        Raises:
            CheckpointUnwritable: there was no room or permission for it.
            Exception: any other failure of it.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            raise self._failure

    def resume(self, network: nn.Module, optimizer: Optimizer) -> Resumed | None:
        """Load the newest undamaged checkpoint; None if there is none.

        Rank 0 lists, since mounts of one folder on several machines may lag behind each other;
        every rank verifies a part of the files.
        """
        listed = self._folder.committed() if self._world.is_first else []
        content = json.dumps([[found.step, dict(found.files)] for found in listed]).encode()
        for step, files in json.loads(self._world.from_first(content) or b"[]"):
            checkpoint = Checkpoint(step=step, files=files)
            damage = self._folder.damage(checkpoint, part=self._world.rank, parts=self._world.size)
            damaged_parts = torch.tensor([float(damage is not None)], device=self._world.device)
            if self._world.sum(damaged_parts).item():
                reason = damage or "corrupt: another rank found a file that differs from its record"
                self._folder.skip(checkpoint, reason)
                continue
            folder = self._folder.content(step)
            sharded_state.read(folder, network, optimizer, self._group)
            has_notes = self._world.is_first and _NOTES_NAME in checkpoint.files
            notes = (folder / _NOTES_NAME).read_bytes() if has_notes else b""
            return Resumed(step=step, notes=notes)
        return None

    def _allocate(self, state: sharded_state.State) -> None:
        try:
            self._staged = sharded_state.staged(
                state
            )  # the content is overwritten by the first save
        except Exception as error:  # noqa: BLE001  # raised by the next start or finish
            self._failure = error

    def _save(self, step: int, state: dict[str, Any], notes: bytes) -> None:
        try:
            self._write(step, state, notes)
        except Exception as error:  # noqa: BLE001  # raised by the next start or finish
            self._failure = error
            if isinstance(error, OSError) or _TORCHS_WRITER in str(error):
                self._failure = self._unwritable(step, error)

    def _unwritable(self, step: int, error: Exception) -> CheckpointUnwritable:
        reason = str(error) if isinstance(error, OSError) else f"is there room left? torch: {error}"
        return CheckpointUnwritable(
            f"the checkpoint of step {step} could not be written to {self._folder.content(step)}: "
            f"{reason}. Make room or give another --checkpoint-dir, and start again to go on from "
            "the one before"
        )

    def _write(self, step: int, state: dict[str, Any], notes: bytes) -> None:
        content = self._folder.content(step)
        sharded_state.write(content, state, self._group)
        prefix = f"__{self._world.rank}_"
        mine = [path for path in content.iterdir() if path.name.startswith(prefix)]
        if self._world.is_first:
            mine.append(content / sharded_state.INDEX_NAME)
            if notes:
                mine.append(content / _NOTES_NAME)
                write_atomically(mine[-1], notes)
        hashes = {path.name: sha256_of(path) for path in mine}
        by_rank: list[dict[str, str] | None] = [hashes]
        if self._group is not None:
            by_rank = [None] * self._world.size
            dist.all_gather_object(by_rank, hashes, group=self._group)
        if self._world.is_first:
            files = {name: sha for part in by_rank for name, sha in (part or {}).items()}
            self._folder.commit(Checkpoint(step=step, files=files))
