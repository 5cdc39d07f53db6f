"""The manifest: the frozen list of the files of a dataset version.

Format: `manifest.jsonl`, one JSON object per line, sorted by path (docs/architecture.md, "What a
dataset version is"): `{"path": "7/1.png", "size": 123, "md5": "<hex, or null>", "etag": "0x8D"}`,
with the key `file` if the data folder contains copies that are named by their content.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast

from trainers.errors import DataRejected, FileProblem, LaunchInvalid

MANIFEST_NAME = "manifest.jsonl"
LINES_PER_LINK = 2**20
_VERSION_HEX_DIGITS = 16
_MD5 = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A file: its path below the data folder, its size in bytes, and its MD5 (hex) if known."""

    path: str
    size: int
    md5: str | None = None
    etag: str | None = None
    file: str | None = None
    """The path below the data folder, if the file is a copy that is named by its content."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A dataset version: its name and its entries, sorted by path."""

    version: str
    entries: tuple[Entry, ...]


def read_manifest(location: Path, version: str | None = None) -> Manifest:
    """Read the manifest at `location`: the file itself, or the folder with manifest.jsonl.

    The version is `version` if given, else computed from the entries. It cannot be taken from the
    folder's name, since Azure ML mounts inputs under names of its own.

    Raises:
        DataRejected: a line is not an entry, or a path occurs twice or leads out of the folder.
        LaunchInvalid: the manifest is missing or cannot be read.
    """
    path = location / MANIFEST_NAME if location.is_dir() else location
    try:
        content = path.read_bytes()
    except OSError as error:
        raise LaunchInvalid(
            f"--manifest {path} cannot be read ({error.strerror}): name a {MANIFEST_NAME}, or the "
            "folder that holds one"
        ) from error
    entries = tuple(sorted(parse(content), key=lambda entry: entry.path))
    return Manifest(version=version or dataset_version(entries), entries=entries)


def dataset_version(entries: Iterable[Entry]) -> str:
    """Return a hash of path, size and MD5 (else ETag) of every entry, in order.

    If an entry has a copy, its name is hashed, too. The hash is a chain: after each
    `LINES_PER_LINK` entries a new hash starts with the hex digest of the one before.

    Source: docs/architecture.md, "What a dataset version is".
    """
    digest = hashlib.sha256()
    for number, entry in enumerate(entries):
        if number and number % LINES_PER_LINK == 0:
            digest = hashlib.sha256(digest.hexdigest().encode())
        copy = [] if entry.file is None else [entry.file]
        fields = [entry.path, entry.size, entry.md5 or entry.etag, *copy]
        digest.update(json.dumps(fields).encode())
        digest.update(b"\n")
    return digest.hexdigest()[:_VERSION_HEX_DIGITS]


def parse(content: bytes) -> Iterator[Entry]:
    """Parse manifest.jsonl.

    Raises:
        DataRejected: a line is not an entry; the message has the first such line and the reason.
    """
    seen: set[str] = set()
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            entry = _entry(json.loads(line))
            if entry.path in seen:
                raise ValueError(f"the path {entry.path!r} occurs twice")  # noqa: TRY301  # one exit for all reasons
        except (ValueError, RecursionError) as error:  # RecursionError: deeply nested brackets
            where = f"{MANIFEST_NAME}:{number}"
            raise DataRejected(
                f"{where} is not a manifest entry: {error}",
                [FileProblem(path=where, reason=str(error))],
            ) from error
        seen.add(entry.path)
        yield entry


def _entry(value: object) -> Entry:
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004  # the caller reports the reason
    fields = cast("dict[str, Any]", value)
    path, size, file = fields.get("path"), fields.get("size"), fields.get("file")
    md5, etag = fields.get("md5"), fields.get("etag")
    if not isinstance(path, str) or not _is_inside(path):
        raise ValueError(f"path {path!r} is not a relative path inside the data folder, in UTF-8")
    if type(size) is not int or size < 0:
        raise ValueError(f"size {size!r} is not a number of bytes")
    if md5 is not None and not (isinstance(md5, str) and _MD5.fullmatch(md5)):
        raise ValueError(f"md5 {md5!r} is neither 32 lower-case hex digits nor null")
    if not isinstance(etag, str | None):
        raise ValueError(f"etag {etag!r} is not a string")  # noqa: TRY004  # the same
    if file is not None and not (isinstance(file, str) and _is_inside(file)):
        raise ValueError(f"file {file!r} is not a relative path inside the data folder, in UTF-8")
    return Entry(path=path, size=size, md5=md5, etag=etag, file=file)


def _is_inside(path: str) -> bool:
    try:
        path.encode()  # a JSON escape may be an unpaired surrogate
    except UnicodeEncodeError:
        return False
    parts = PurePosixPath(path)
    return bool(path) and "\0" not in path and not parts.is_absolute() and ".." not in parts.parts
