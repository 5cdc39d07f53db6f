"""What was decided on every event, kept for ever: one append blob per blob of a landing zone.

A decision that counts (`started`, `merged`) is appended only at the length that was read, so that
of two copies of one event that are handled at the same time one is decided first and the other sees
it. The other decisions stay true whatever comes between, and are appended wherever the page ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

    from handlers.triggers.blob_events import BlobLanded

Decision = Literal["started", "merged", "duplicate", "filtered", "superseded", "rejected"]
COUNTING: frozenset[Decision] = frozenset({"started", "merged"})
_PRECONDITION_FAILED = 412


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One event and what was decided on it."""

    event_id: str
    etag: str
    sequencer: str
    size: int
    event_time: str
    decided_at: str
    decision: Decision
    reason: str


class Conflict(Exception):
    """Somebody else wrote to this page of the ledger since it was read."""


@dataclass(frozen=True)
class Page:
    """The decisions on all events of one blob, oldest first, as they were read."""

    name: str
    entries: Sequence[Entry]
    length_bytes: int | None
    """None while nothing was ever written."""


def page_name(pipeline: str, container: str, blob: str) -> str:
    """Where the decisions on a blob are kept. Hashed: any blob name makes a valid page name."""
    digest = hashlib.sha256(f"{container}/{blob}".encode()).hexdigest()[:32]
    return f"ledger/{pipeline}/{digest}.jsonl"


def read_page(records: ContainerClient, name: str) -> Page:
    """A page as it stands now; an empty one where nothing was ever decided."""
    try:
        text = records.download_blob(name).readall()
    except ResourceNotFoundError:
        return Page(name, [], None)
    entries = [Entry(**json.loads(line)) for line in text.decode().splitlines()]
    return Page(name, entries, len(text))


def append(records: ContainerClient, page: Page, entry: Entry) -> None:
    """Add a decision to the page.

    If the process dies after the page was created, it is empty, which is as good as missing.

    Raises:
        Conflict: the decision counts, and the page is not as it was read; read it again and decide
            again.
    """
    blob = records.get_blob_client(page.name)
    line = json.dumps(asdict(entry)).encode() + b"\n"
    if page.length_bytes is None:
        with contextlib.suppress(ResourceExistsError):
            blob.create_append_blob(match_condition=MatchConditions.IfMissing)
    if entry.decision not in COUNTING:
        blob.append_block(line)
        return
    try:
        blob.append_block(line, appendpos_condition=page.length_bytes or 0)
    except HttpResponseError as error:
        if error.status_code == _PRECONDITION_FAILED:
            raise Conflict(page.name) from error
        raise


def decide(entries: Sequence[Entry], event: BlobLanded) -> tuple[Decision, str] | None:
    """What the ledger alone says of an event; None when it is news.

    By ETag for copies of an event, by the service's sequencer for late ones: never by a clock.
    """
    taken = [entry for entry in entries if entry.decision in COUNTING]
    for entry in taken:
        if entry.etag == event.etag:
            return "duplicate", f"event {entry.event_id} told of this content (ETag) before"
    newest = max((entry.sequencer for entry in taken), default="")
    if event.sequencer and event.sequencer < newest:
        return "superseded", "a later write of this blob was told of before"
    return None
