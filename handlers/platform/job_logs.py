"""The logs of Azure ML's jobs, which grow while the jobs run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

TIMEOUT_SECONDS = 10
# A job of several processes has a log for each; a job of one process has one.
_LOG_OF_RANK = re.compile(r"user_logs/std_log_process_(\d+)\.txt$")
_ONLY_LOG = "user_logs/std_log.txt"


@dataclass(frozen=True)
class LogPart:
    """A part of a log, and how many bytes the log has."""

    content: bytes
    start: int
    """Its offset, in bytes."""
    size: int

    @property
    def end(self) -> int:
        """The offset after it."""
        return self.start + len(self.content)


def find_log(names: Iterable[str], rank: int | None) -> str | None:
    """The name of a rank's log; for an unknown rank, the only log or the log of rank 0."""
    known = set(names)
    by_rank = {int(found[1]): name for name in known if (found := _LOG_OF_RANK.search(name))}
    return by_rank.get(rank or 0) or (_ONLY_LOG if _ONLY_LOG in known else None)


def read_log(url: str, *, offset: int | None, limit_bytes: int) -> LogPart:
    """Read a log from an offset on; without one, its end. A log that is shorter began again.

    Raises:
        AzureError: it cannot be read. The text may have the URL with a shared access signature.
        ValueError: likewise.
    """
    from azure.storage.blob import BlobClient  # noqa: PLC0415 - see handlers.platform.clients

    with BlobClient.from_blob_url(url, connection_timeout=TIMEOUT_SECONDS) as blob:
        size = blob.get_blob_properties().size
        start = max(size - limit_bytes, 0) if offset is None else offset if offset <= size else 0
        length = min(size - start, limit_bytes)
        content = blob.download_blob(offset=start, length=length).readall() if length else b""
    return LogPart(content, start, size)


def whole_lines(part: LogPart, *, has_ended: bool) -> LogPart:
    """The part without a last line that is still being written.

    Of a log that has ended, the last line is whole; so is a line that fills the part.
    """
    is_cut = part.end < part.size
    if has_ended and not is_cut:
        return part
    end = max(part.content.rfind(b"\n"), part.content.rfind(b"\r")) + 1
    if end == 0 and is_cut:
        return part
    return LogPart(part.content[:end], part.start, part.size)


def lines_of(content: bytes) -> list[str]:
    """The lines as a terminal shows them: where a program wrote over its line, what came last."""
    text = content.decode(errors="replace").replace("\r\n", "\n").removesuffix("\n")
    lines = text.split("\n") if content else []
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines]
