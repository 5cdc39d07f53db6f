"""The digest of the code and other local files that a job file names."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import yaml

_CACHES = "__pycache__"


def digest_of_code(job_file: Path) -> str | None:
    """The SHA-256 of all files that a job file names; None if it names none.

    Every text in the file that is the relative path of a file or folder counts: `code`, the file of
    a component, of a trial, of an environment. Other YAML files are read in the same way.
    """
    files = _named_files(job_file, seen={job_file.resolve()})
    if not files:
        return None
    digest = hashlib.sha256()
    for name in sorted(files):
        content = files[name].read_bytes()
        digest.update(f"{name}\n{len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _named_files(yaml_file: Path, seen: set[Path]) -> dict[str, Path]:
    """Name → path of the files that a YAML file names; a name does not depend on the machine."""
    found: dict[str, Path] = {}
    for text in _texts_in(yaml_file.read_text("utf-8")):
        path = _local(yaml_file.parent, text)
        if path is None or path.resolve() in seen:
            continue
        seen.add(path.resolve())
        if path.is_dir():
            inside = (each for each in path.rglob("*") if _CACHES not in each.parts)
            found |= {
                f"{text}/{each.relative_to(path).as_posix()}": each
                for each in inside
                if each.is_file()
            }
            continue
        found[text] = path
        if path.suffix in (".yml", ".yaml"):
            found |= {f"{text}:{name}": each for name, each in _named_files(path, seen).items()}
    return found


@functools.lru_cache(maxsize=64)
def _texts_in(yaml_text: str) -> tuple[str, ...]:
    return tuple(_texts(yaml.safe_load(yaml_text)))


def _texts(document: Any) -> Iterator[str]:
    if isinstance(document, str):
        yield document
    elif isinstance(document, dict):
        for value in cast("dict[Any, Any]", document).values():
            yield from _texts(value)
    elif isinstance(document, list):
        for value in cast("list[Any]", document):
            yield from _texts(value)


def _local(folder: Path, text: str) -> Path | None:
    """The file or folder that a text names, relative to the folder of its YAML file."""
    name = text.removeprefix("file:")
    if not name or name.startswith("/") or "\n" in name:
        return None
    try:
        path = folder / name
        return path if path.exists() else None
    except (OSError, ValueError):  # no path: too long, or with a null byte
        return None
