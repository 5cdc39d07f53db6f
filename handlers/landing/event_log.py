"""Decisions on events, stored for `explain` in one append blob per hour.

The log is informational. An event that is delivered twice is logged twice, with the same id.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

Decision = Literal["opened", "merged", "late", "filtered", "rejected"]
"""`opened` a landing, or `merged` into an open one; `late`: the last listing saw the blob."""

# https://learn.microsoft.com/azure/storage/blobs/scalability-targets: an append blob has 50,000
# blocks, and a block has 4 MiB in every version of the service.
BLOCK_LIMIT_BYTES = 4 * 1024 * 1024
_BLOCK_COUNT_EXCEEDED = "BlockCountExceedsLimit"
_FOLDER = "events"
UNREADABLE = "_unreadable"
"""Used instead of a pipeline's name for events that could not be parsed."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An event and the decision on it."""

    event_id: str
    change: str
    blob: str
    """The full name in the container, or the subject of an event that could not be parsed."""
    etag: str
    event_time: str
    decided_at: str
    decision: Decision
    reason: str


def append(
    records: ContainerClient, pipeline: str, entries: Sequence[Entry], *, at: datetime
) -> None:
    """Log the decisions of one moment on events of a pipeline, or of `UNREADABLE`.

    Sends one request per block.
    """
    for block in _blocks(entries):
        _append_block(records, _hour(pipeline, at), block)


def read(
    records: ContainerClient, pipeline: str, blob: str, *, since: datetime, until: datetime
) -> Iterator[Entry]:
    """The entries about a blob in a time span, oldest hour first.

    Costs a listing and a download of the span's hours, so keep the span short.
    """
    # The name as `json.dumps` encodes it; lines without it are not parsed.
    wanted = json.dumps(blob).encode()
    first, last = _hour(pipeline, since), _hour(pipeline, until)
    names = records.list_blob_names(name_starts_with=f"{_FOLDER}/{pipeline}/")
    for name in sorted(name for name in names if first <= name.rpartition("_")[0] <= last):
        for line in records.download_blob(name).readall().split(b"\n"):
            if wanted in line:
                entry = Entry(**json.loads(line))
                if entry.blob == blob:
                    yield entry


def _hour(pipeline: str, at: datetime) -> str:
    return f"{_FOLDER}/{pipeline}/{at.astimezone(UTC):%Y-%m-%dT%H}"


def _blocks(entries: Sequence[Entry]) -> Iterator[bytes]:
    block: list[bytes] = []
    size = 0
    for entry in entries:
        # All fields are strings; `asdict` would copy each and take three times as long.
        line = json.dumps(vars(entry)).encode() + b"\n"
        if block and size + len(line) > BLOCK_LIMIT_BYTES:
            yield b"".join(block)
            block, size = [], 0
        block.append(line)
        size += len(line)
    if block:
        yield b"".join(block)


def _append_block(records: ContainerClient, hour: str, block: bytes) -> None:
    """Append to the hour's blob, or to its next blob if it has the maximum number of blocks."""
    number = 0
    while True:
        blob = records.get_blob_client(f"{hour}_{number:04d}.jsonl")
        try:
            blob.append_block(block)
        except ResourceNotFoundError:
            with contextlib.suppress(ResourceExistsError):
                blob.create_append_blob(match_condition=MatchConditions.IfMissing)
        except HttpResponseError as error:
            if getattr(error, "error_code", None) != _BLOCK_COUNT_EXCEEDED:
                raise
            number += 1
        else:
            return
