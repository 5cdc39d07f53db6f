"""Writes the histories of a running app to files, one for each instance."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from replay_guard.history import CannotCheck, Document
from replay_guard.management_api import ManagementApi
from replay_guard.redaction import redact

_LONGEST_NAME: Final = 150


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The selection to export.

    Attributes:
        instances: ids; empty for all that match `statuses` and `names`.
        names: orchestrators, empty for all.
        statuses: `runtimeStatus` values, empty for all.
        version: of the instances, which the API does not show.
        with_inputs: whether to keep values in full that are otherwise hashed.
    """

    instances: Collection[str] = ()
    names: Collection[str] = ()
    statuses: Sequence[str] = ()
    version: str | None = None
    with_inputs: bool = False


@dataclass
class Exported:
    """Result of an export: files, and for instances without one the reason."""

    files: list[Path]
    skipped: dict[str, str]


def export(
    api: ManagementApi, folder: Path, wanted: Wanted, progress: Callable[[str], None]
) -> Exported:
    """Write each wanted instance's history to a file of the folder.

    Raises:
        ApiRefused: the app refused a request.
        OSError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    done = Exported([], {})
    for instance_id in _ids(api, wanted):
        progress(f"{len(done.files)} exported; reading {instance_id}")
        status = api.instance(instance_id)
        if status is None:
            done.skipped[instance_id] = "there is no such instance (any more)"
            continue
        try:
            document = redact(status, version=wanted.version, with_inputs=wanted.with_inputs)
        except CannotCheck as error:
            done.skipped[instance_id] = str(error)
            continue
        file = folder / file_name(instance_id)
        _write(file, document)
        done.files.append(file)
    return done


def file_name(instance_id: str) -> str:
    """The name of an instance's file: its id, with unsafe characters percent-encoded."""
    name = quote(instance_id, safe=" @=+,").lstrip(".")
    if name != instance_id.lower() or len(name) > _LONGEST_NAME:
        # Two ids must not share a file, even if file names ignore upper and lower case.
        mark = hashlib.sha256(instance_id.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        name = f"{name[:_LONGEST_NAME]}-{mark}"
    return f"{name}.json"


def _ids(api: ManagementApi, wanted: Wanted) -> Iterator[str]:
    if wanted.instances:
        yield from wanted.instances
        return
    names = {name.casefold() for name in wanted.names}
    ids = [
        (str(each.get("createdTime")), str(each["instanceId"]))
        for each in api.instances(wanted.statuses)
        if not names or str(each.get("name", "")).casefold() in names
    ]
    for _, instance_id in sorted(ids, reverse=True):
        yield instance_id


def _write(file: Path, document: Document) -> None:
    """Write a file atomically, readable by this user only: it contains results and inputs."""
    unfinished = file.with_suffix(".part")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(document, stream, indent=1)
        stream.write("\n")
    unfinished.replace(file)
