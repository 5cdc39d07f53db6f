"""The blob events in the journal that Azurite writes of its metadata.

`azurite/blob_events.js` writes each event into the line of its change; `durable_metadata.js` has
the format of a line. The events stay there until they are published: Azurite keeps a journal that
is not read to its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_EVENT: Final = '{"event":'
_HEAD: Final = re.compile(rb"(\d+) ([0-9a-f]+) ")


class EventJournal:
    """The outbox of all accounts' events.

    The number of an event is its position: that of the journal, and the offset in bytes behind its
    line. So numbers rise.

    Args:
        database: the file of the metadata. The names of its journals begin with this name.
        event_of: returns the event of a change with a number; None if the account has no topic.

    Attributes:
        filled: set when there may be events to publish.
    """

    def __init__(
        self, database: Path, event_of: Callable[[Mapping[str, Any], int], dict[str, Any] | None]
    ) -> None:
        database.parent.mkdir(parents=True, exist_ok=True)
        self._database = database
        self._event_of = event_of
        self.filled = asyncio.Event()
        # A file of constant size, written in place: so it can be written on a full disk. No fsync,
        # as for the journal.
        self._file = os.open(f"{database}.events-read", os.O_RDWR | os.O_CREAT, 0o600)
        self._position = int(os.read(self._file, 32) or b"0", 16)
        self._read_to(self._position)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def oldest(self, limit: int) -> list[tuple[int, dict[str, Any]]]:
        """The oldest events that are not published, with their numbers."""
        events: list[tuple[int, dict[str, Any]]] = []
        position = self._position
        for number, change in self._lines():
            event = None if change is None else self._event_of(change, number)
            if event is not None:
                events.append((number, event))
                if len(events) == limit:
                    break
            elif not events:
                position = number
        if position != self._position:
            self._read_to(position)
        return events

    async def published(self, numbers: Sequence[int]) -> None:
        """Note that Event Grid has acknowledged these events, and all before them."""
        self._read_to(max(numbers))

    def _read_to(self, position: int) -> None:
        os.pwrite(self._file, f"{position:032x}".encode(), 0)
        self._position = position

    def _lines(self) -> Iterator[tuple[int, Mapping[str, Any] | None]]:
        """The position behind each line that was not read, and the event in it, if any."""
        journal, offset = divmod(self._position, 1 << 64)
        while True:
            # Nothing is added to a journal after the next one exists.
            following = min((each for each in self._journals() if each > journal), default=None)
            path = Path(f"{self._database}.journal-{journal}")
            with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
                file.seek(offset)
                for line in file:
                    if following is None and not line.endswith(b"\n"):
                        return  # it is being written
                    offset += len(line)
                    yield journal << 64 | offset, _event_in(line.removesuffix(b"\n"))
            if following is None:
                return
            journal, offset = following, 0
            yield journal << 64, None

    def _journals(self) -> Iterator[int]:
        prefix = f"{self._database.name}.journal-"
        for name in os.listdir(self._database.parent):  # noqa: PTH208 - twice for each event
            if name.startswith(prefix):
                yield int(name.removeprefix(prefix))


def _event_in(line: bytes) -> Mapping[str, Any] | None:
    """The event in a line; None if it has none, or was not written to its end."""
    head = _HEAD.match(line)
    if head is None or not line.startswith(_EVENT.encode(), head.end()):
        return None
    text = line[head.end() :]
    checksum = hashlib.sha1(text, usedforsecurity=False).hexdigest()[:16].encode()
    if (len(text), checksum) != (int(head[1]), head[2]):
        return None
    event, _ = json.JSONDecoder().raw_decode(text.decode(), len(_EVENT))
    return event
