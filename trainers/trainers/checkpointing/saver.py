"""Asynchronous checkpoints: training waits for the copy in memory, not for the storage.

At most one save is in progress. Saves use their own process group, so that their collectives
cannot interleave with those of the training.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from trainers.checkpointing import sharded_state
from trainers.checkpointing.checkpoints import Checkpoint, CheckpointFolder, sha256_of
from trainers.errors import CheckpointUnwritable
from trainers.files import write_atomically
from trainers.parallelism.devices import thread_of
from trainers.parallelism.world import World

# Rank 0's notes. They are a file of the checkpoint, so that the record has their hash.
_NOTES_NAME = "notes.json"
# torch reports a failed write as a RuntimeError whose message names this source file.
_TORCHS_WRITER = "inline_container"


class Saver:
    """Writes and reads the checkpoints of one run. Every rank calls the same methods.

    A rank waits up to `timeout_seconds` for the files of the others.
    """

    def __init__(self, folder: CheckpointFolder, world: World, *, timeout_seconds: float) -> None:
        self._folder = folder
        self._world = world
        self._group: Any = None
        if world.size > 1:
            timeout = timedelta(seconds=timeout_seconds)
            self._group = dist.new_group(backend="gloo", timeout=timeout)
        self._thread = thread_of(world.device, "checkpoint")
        self._work: Future[None] | None = None
        self._staged: sharded_state.State | None = None

    def start(
        self,
        step: int,
        network: nn.Module,
        optimizer: Optimizer,
        notes: bytes = b"",
        further: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Copy the tensors of network and optimizer, then write them in the background.

        `step` is the number of completed steps. `resume` returns it and rank 0's `notes`, and loads
        the `further` tensors, too.

        Raises:
            CheckpointUnwritable: the previous save failed, see `finish`.
        """
        self.finish()
        now = sharded_state.state_of(network, optimizer, further)
        self._staged = state = sharded_state.staged(now, into=self._staged)
        self._work = self._thread.submit(self._save, step, state, notes)

    def finish(self) -> None:
        """Wait until the last save is done.

        Raises:
            CheckpointUnwritable: the storage had no space, or refused the write.
            Exception: the save failed for another reason.
        """
        if self._work is not None:
            self._work.result()

    def resume(
        self,
        network: nn.Module,
        optimizer: Optimizer,
        further: Mapping[str, Tensor] | None = None,
    ) -> tuple[int, bytes]:
        """Load the newest undamaged checkpoint in place; return its step and its notes.

        The step is 0 if there is none. Only rank 0 lists the folder, since its mounts on several
        machines may show different states. Every rank verifies a part of the files.
        """
        mine = self._folder.committed() if self._world.is_first else []
        for checkpoint in self._world.gather(mine)[0]:
            folder = self._folder.content(checkpoint.step)
            damage = self._folder.damage(checkpoint, part=self._world.rank, parts=self._world.size)
            damages = [each for each in self._world.gather(damage) if each is not None]
            if damages:
                self._folder.skip(folder.name, damages[0])
                continue
            sharded_state.read(folder, network, optimizer, self._group, further)
            has_notes = self._world.is_first and _NOTES_NAME in checkpoint.files
            notes = (folder / _NOTES_NAME).read_bytes() if has_notes else b""
            return checkpoint.step, self._world.gather(notes)[0]
        return 0, b""

    def _save(self, step: int, state: sharded_state.State, notes: bytes) -> None:
        try:
            self._write(step, state, notes)
        except (OSError, RuntimeError) as error:
            is_write = isinstance(error, OSError)
            if not is_write and _TORCHS_WRITER not in str(error):
                raise
            reason = str(error) if is_write else f"is there room left? torch: {error}"
            raise CheckpointUnwritable(
                f"the checkpoint of step {step} could not be written to "
                f"{self._folder.content(step)}: {reason}. Make room or give another "
                "--checkpoint-dir, and start again to go on from the one before"
            ) from error

    def _write(self, step: int, state: sharded_state.State, notes: bytes) -> None:
        content = self._folder.content(step)
        sharded_state.write(content, state, self._group)
        mine = list(content.glob(f"__{self._world.rank}_*"))
        if self._world.is_first:
            mine.append(content / sharded_state.INDEX_NAME)
            if notes:
                mine.append(content / _NOTES_NAME)
                write_atomically(mine[-1], notes)
        hashes = {path.name: sha256_of(path) for path in mine}
        by_rank = [hashes] * self._world.size
        if self._group is not None:
            dist.all_gather_object(by_rank, hashes, group=self._group)
        if self._world.is_first:
            files = {name: sha for part in by_rank for name, sha in part.items()}
            self._folder.commit(Checkpoint(step=step, files=files))
