"""The codec of frozen manifests: one JSON line per blob, sorted by path. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from json.encoder import encode_basestring_ascii
from typing import Any, ClassVar, NamedTuple

VERSION_HEX_DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestLine:
    """One blob at the time of the freeze; its path is relative to the prefix."""

    path: str
    size: int
    md5: str | None
    """Hex; None if the service keeps no MD5."""
    etag: str
    file: str | None = None
    """Path of its copy in the folder of copies; None if blobs are not copied."""


def encode_line(path: str, size: int, md5: str | None, etag: str, file: str | None = None) -> str:
    """One line of `manifest.jsonl`, with its newline.

    ASCII only: some readers treat some Unicode characters as line ends. Formatted by hand:
    `json.dumps` takes ten times as long, which matters for ten million lines.
    """
    digest = "null" if md5 is None else f'"{md5}"'
    copy = "" if file is None else f', "file": {encode_basestring_ascii(file)}'
    return (
        f'{{"path": {encode_basestring_ascii(path)}, "size": {size}, "md5": {digest}, '
        f'"etag": {encode_basestring_ascii(etag)}{copy}}}\n'
    )


_EXTENSION = re.compile(r"\.[A-Za-z0-9]{1,10}$")


def copy_name(line: ManifestLine) -> str:
    """The path of a blob's copy in the folder of copies, named by its content.

    Equal content has one copy for all paths. Each write of a blob without MD5 counts as new
    content. The extension is kept, because some readers depend on it.
    """
    if line.md5 is None:
        content = hashlib.sha256(json.dumps([line.path, line.etag]).encode()).hexdigest()
    else:
        content = f"{line.md5}-{line.size}"
    extension = _EXTENSION.search(line.path)
    return f"{content[:2]}/{content}{extension[0] if extension else ''}"


def add_copy_names(lines: bytes) -> bytes:
    """Add the key `file`, the path of the copy, to encoded lines."""
    decoded = map(decode_line, lines.splitlines())
    return "".join(
        encode_line(line.path, line.size, line.md5, line.etag, copy_name(line)) for line in decoded
    ).encode()


def decode_line(line: str | bytes) -> ManifestLine:
    """Parse one line.

    Raises:
        ValueError, KeyError, TypeError: `encode_line` did not write the line.
    """
    document: Any = json.loads(line)
    return ManifestLine(
        path=document["path"],
        size=document["size"],
        md5=document["md5"],
        etag=document["etag"],
        file=document.get("file"),
    )


_PATH = re.compile(rb'\{"path": ("[^"\\]*(?:\\.[^"\\]*)*"),')
_WITH_MD5 = re.compile(
    rb'\{"path": ("[^"\\]*(?:\\.[^"\\]*)*"), "size": (\d+), "md5": ("[^"\\]*"), '
    rb'"etag": "[^"\\]*(?:\\.[^"\\]*)*"(?:(, )"file": ("[^"\\]*"))?\}'
)
_WITHOUT_MD5 = re.compile(
    rb'\{"path": ("[^"\\]*(?:\\.[^"\\]*)*"), "size": (\d+), "md5": null, '
    rb'"etag": ("[^"\\]*(?:\\.[^"\\]*)*")(?:(, )"file": ("[^"\\]*"))?\}'
)


def path_of(line: bytes) -> str:
    """The path of an encoded line, without parsing the rest."""
    match = _PATH.match(line)
    assert match is not None, f"{line!r} is not a line of a manifest"
    return text_of(match[1])


_LINE = re.compile(
    rb'\{"path": ("[^"\\]*(?:\\.[^"\\]*)*"), "size": (\d+), "md5": (?:null|"([^"\\]*)"), '
    rb'"etag": ("[^"\\]*(?:\\.[^"\\]*)*")'
)


class EncodedLine(NamedTuple):
    """A line whose texts are still encoded: see `text_of`."""

    path: bytes
    size: int
    md5: bytes
    """Hex; empty if the blob has none."""
    etag: bytes

    def has_content_of(self, other: EncodedLine) -> bool:
        """Whether two blobs have the same content; the ETag stands for a missing MD5."""
        if self.md5 and other.md5:
            return self[1:3] == other[1:3]
        return self[1:] == other[1:]


def parse_lines(lines: Sequence[bytes]) -> list[EncodedLine]:
    """Read all lines at once: ten million one by one would take minutes."""
    parsed = [
        EncodedLine(path, int(size), md5, etag)
        for path, size, md5, etag in _LINE.findall(b"\n".join(lines))
    ]
    assert len(parsed) == len(lines), "a line was not written by `encode_line`"
    return parsed


def text_of(encoded: bytes) -> str:
    """The text of an encoded path or ETag."""
    return json.loads(encoded) if b"\\" in encoded else encoded[1:-1].decode()


class DatasetVersion:
    """The hash of a manifest's content: path, size and MD5 of every blob, in order of path.

    The ETag replaces a missing MD5 (blobs uploaded in blocks without one), so that such a blob
    counts as changed after every write. SHA-256 over `[path, size, content]`,
    or `[path, size, content, file]` if blobs are copied, as JSON with a newline each; computed from
    encoded lines, without parsing them.

    A longer manifest is a chain of links of `LINES_PER_LINK` lines: each link is hashed after the
    hex digest of the link before it. So hashing can be split, and the version depends only on the
    lines.
    """

    LINES_PER_LINK: ClassVar[int] = 2**20
    """The number of lines that one activity hashes or writes."""

    def __init__(self, after: str | None = None) -> None:
        """Begin a manifest, or continue after `link`, if only full links were added before it."""
        self._digest = hashlib.sha256()
        self._lines = 0
        self._after = after

    def update(self, lines: bytes) -> None:
        """Add complete lines, ordered by path."""
        count = lines.count(b"\n")
        while self._lines + count > self.LINES_PER_LINK:
            room = self.LINES_PER_LINK - self._lines
            head, lines = split_lines(lines, room)
            self._add(head, room)
            self._after, self._digest, self._lines = self.link, hashlib.sha256(), 0
            count -= room
        if count:
            self._add(lines, count)

    @property
    def link(self) -> str:
        """The hex digest of the lines so far; only after full links can another object continue."""
        return self._digest.hexdigest() if self._lines or self._after is None else self._after

    def _add(self, lines: bytes, count: int) -> None:
        if self._lines == 0 and self._after is not None:
            self._digest.update(self._after.encode())
        self._lines += count
        self._digest.update(hashed_content(lines))

    def __str__(self) -> str:
        return self.link[:VERSION_HEX_DIGITS]


def hashed_content(lines: bytes) -> bytes:
    """The part of a `DatasetVersion` that encoded lines add."""
    content, with_md5 = _WITH_MD5.subn(rb"[\1, \2, \3\4\5]", lines)
    if with_md5 < lines.count(b"\n"):
        content = _WITHOUT_MD5.sub(rb"[\1, \2, \3\4\5]", content)
    return content


def split_lines(lines: bytes, count: int) -> tuple[bytes, bytes]:
    """The first `count` lines, and the rest."""
    if count == 0:
        return b"", lines
    end = next(islice(re.finditer(rb"\n", lines), count - 1, None)).end()
    return lines[:end], lines[end:]


# Makes the manifest's folder a data asset of type mltable.
# https://learn.microsoft.com/azure/machine-learning/reference-yaml-mltable
MLTABLE = """\
$schema: https://azuremlschemas.azureedge.net/latest/MLTable.schema.json
type: mltable
paths:
  - file: ./manifest.jsonl
transformations:
  - read_json_lines:
      encoding: utf8
"""
