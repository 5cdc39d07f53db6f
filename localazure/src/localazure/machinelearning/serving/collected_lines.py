"""Lines that deployments collect, on their way to append blobs.

Each deployment has a backlog of its own, and each folder a blob of its own: what storage refuses
for one of them does not affect the others.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import TypeAlias

from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.data.blobs import AppendBlob, BlobStore
from localazure.machinelearning.data.log_upload import APPEND_BYTES
from localazure.storage_client.endpoint import ConflictError, NotFoundError, StorageError

MOST_WAITING_BYTES = 32 * 1024 * 1024
"""The largest backlog of a deployment."""

DeploymentKey: TypeAlias = tuple[str, str]
"""The names of endpoint and deployment."""

logger = logging.getLogger(__name__)


class CollectedLines:
    """The lines that wait for storage. A crash of the process loses them.

    Args:
        store: has the blobs.
        most_waiting_bytes: the largest backlog of a deployment; further lines are dropped.
    """

    def __init__(self, store: BlobStore, *, most_waiting_bytes: int = MOST_WAITING_BYTES) -> None:
        self._store = store
        self._most_waiting_bytes = most_waiting_bytes
        self._backlogs: dict[DeploymentKey, dict[BlobPath, bytearray]] = {}
        self._blobs: dict[BlobPath, AppendBlob] = {}
        self._problems: dict[DeploymentKey | BlobPath, str] = {}

    def add(self, deployment: DeploymentKey, folder: BlobPath, line: bytes) -> None:
        """Queue a line, which ends with a newline, for a blob in a folder."""
        backlog = self._backlogs.setdefault(deployment, {})
        if sum(map(len, backlog.values())) + len(line) > self._most_waiting_bytes:
            name = "/".join(deployment)
            self._warn(deployment, f"deployment {name}: too much collected data waits", "dropped")
            return
        self._problems.pop(deployment, None)
        backlog.setdefault(folder, bytearray()).extend(line)

    async def flush(self) -> None:
        """Append the queued lines to their blobs.

        Keep the lines while storage is unavailable. Drop the lines that it refuses.
        """
        for backlog in list(self._backlogs.values()):
            for folder, waiting in list(backlog.items()):
                while waiting and await self._append_some(folder, waiting):
                    pass
                if not waiting:
                    del backlog[folder]

    def waiting_bytes(self) -> int:
        """The size of all backlogs."""
        return sum(len(each) for backlog in self._backlogs.values() for each in backlog.values())

    async def _append_some(self, folder: BlobPath, waiting: bytearray) -> bool:
        """Append the first lines; return whether to continue with the next ones."""
        # Whole lines, if possible: the rest of a line may be refused.
        end = waiting.rfind(b"\n", 0, APPEND_BYTES) + 1 or APPEND_BYTES
        lines = bytes(waiting[:end])
        label = f"{folder.container}/{folder.path}"
        try:
            size = await asyncio.to_thread(self._append, folder, lines)
        except StorageError as error:
            if error.is_transient:
                self._warn(folder, f"{label}: collected data waits for storage", error)
                return False
            self._warn(folder, f"{label}: storage refuses collected data, now dropped", error)
            size = len(lines)
        except Exception:  # a defect must not stop the data of others
            logger.exception("%s: %d bytes of collected data are dropped", label, len(lines))
            size = len(lines)
        else:
            self._problems.pop(folder, None)
        del waiting[:size]
        return True

    def _append(self, folder: BlobPath, lines: bytes) -> int:
        """Append to a folder's blob; return how many of the bytes the blob now has."""
        blob = self._blobs.get(folder)
        if blob is not None:
            try:
                return blob.append(lines)
            except (ConflictError, NotFoundError) as error:
                # The blob has its 50,000 blocks, or was deleted.
                logger.info("%s: collected data continues in a new blob: %s", folder.path, error)
        self._store.ensure_container(folder)
        blob = AppendBlob(self._store, folder.child(f"{uuid.uuid4().hex}.jsonl"))
        self._blobs[folder] = blob
        return blob.append(lines)

    def _warn(self, about: DeploymentKey | BlobPath, problem: str, detail: object) -> None:
        """Log a problem once, until there is another one or none."""
        if self._problems.get(about) != problem:
            self._problems[about] = problem
            logger.warning("%s: %s", problem, detail)
