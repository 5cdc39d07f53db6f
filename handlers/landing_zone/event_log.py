"""Decisions on events, kept for `explain`: blocks of many at a time, a file per hour.

Nothing is decided by it. An event that is delivered twice is in it twice, under one id.
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
"""`opened` a landing, or `merged` into one that was under way; `late`: the last listing saw it."""

# https://learn.microsoft.com/azure/storage/blobs/scalability-targets: an append blob has 50,000
# blocks, and a block 4 MiB with every version of the service.
BLOCK_LIMIT_BYTES = 4 * 1024 * 1024
_BLOCK_COUNT_EXCEEDED = "BlockCountExceedsLimit"
_FOLDER = "events"
UNREADABLE = "_unreadable"
"""In place of a pipeline: events that could not be understood."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One event and what was decided on it."""

    event_id: str
    change: str
    blob: str
    """Its full name in the container; of an event that was not understood, its subject."""
    etag: str
    event_time: str
    decided_at: str
    decision: Decision
    reason: str


def append(
    records: ContainerClient, pipeline: str, entries: Sequence[Entry], *, at: datetime
) -> None:
    """Keep the decisions of a moment on events of a pipeline, or of `UNREADABLE`.

    One request for as many as fit into a block.
    """
    for block in _blocks(entries):
        _append_block(records, _hour(pipeline, at), block)


def read(
    records: ContainerClient, pipeline: str, blob: str, *, since: datetime, until: datetime
) -> Iterator[Entry]:
    """The entries about a blob that were decided in a span of time, oldest hour first.

    Costs a listing and a download of those hours: a reader gives the span that it needs.
    """
    # The name as `json.dumps` writes it: lines without it need no parsing.
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
        # All fields are texts: `asdict` would copy each, for three times the time.
        line = json.dumps(vars(entry)).encode() + b"\n"
        if block and size + len(line) > BLOCK_LIMIT_BYTES:
            yield b"".join(block)
            block, size = [], 0
        block.append(line)
        size += len(line)
    if block:
        yield b"".join(block)


def _append_block(records: ContainerClient, hour: str, block: bytes) -> None:
    """Append to the hour's file: to the next one when the file has all the blocks it can have."""
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
