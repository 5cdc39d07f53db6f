"""The frozen manifest: one JSON line a blob, sorted by path. A pure codec."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from orchestrations.errors import PermanentError


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestLine:
    """One blob as it was when the manifest was frozen; its path is relative to the prefix."""

    path: str
    size: int
    md5: str | None
    """Hex, or None where the service keeps none."""
    etag: str


def encode_manifest(lines: Iterable[ManifestLine]) -> Iterator[str]:
    """The lines of `manifest.jsonl`, each with its newline."""
    for line in lines:
        document = {"path": line.path, "size": line.size, "md5": line.md5, "etag": line.etag}
        # ASCII only: some of Unicode's characters end a line for some of the readers.
        yield json.dumps(document) + "\n"


def decode_manifest(text: Iterable[str]) -> Iterator[ManifestLine]:
    """Parse `manifest.jsonl`.

    Raises:
        PermanentError: a line is not what `encode_manifest` writes; the message has its number.
    """
    for number, line in enumerate(text, start=1):
        try:
            document: Any = json.loads(line)
            yield ManifestLine(
                path=document["path"],
                size=document["size"],
                md5=document["md5"],
                etag=document["etag"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise PermanentError(f"manifest.jsonl line {number} is malformed: {error!r}") from error


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
