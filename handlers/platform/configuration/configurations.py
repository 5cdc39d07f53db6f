"""A pipeline's configuration: the deployed one by name, and kept ones by hash.

A batch uses the files that were deployed when it was frozen, and so does every attempt of its run.
`configurations/<pipeline>/<hash>.json` has the text of both files. The hash also covers the code
that the job names.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import yaml

from handlers.platform import record_store
from handlers.platform.clients import Clients
from handlers.platform.configuration.located_yaml import read_text
from handlers.platform.configuration.pipeline_files import (
    PIPELINE_FILE,
    parse_kept_pipeline,
    parse_pipeline,
)
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.datasets import Configuration
from orchestrations.errors import InvalidPipeline

HASH_HEX_DIGITS = 16
_CACHES = "__pycache__"


def deployed_pipeline(clients: Clients, name: str) -> Pipeline:
    """The currently deployed `pipeline.yml`.

    Raises:
        InvalidPipeline: the pipeline is not deployed, or its file is malformed.
    """
    file = _file(clients, name)
    return _parse(file, _read(file), clients.settings.records_container)


def resolve_configuration(clients: Clients, name: str) -> Configuration:
    """Read the currently deployed `pipeline.yml` and its job files, and store their text.

    The hash also covers the code that the job files name. The code itself is not kept: a job is
    submitted with the code that is deployed at that time.

    Raises:
        InvalidPipeline: the pipeline is not deployed, or a file is malformed.
    """
    file = _file(clients, name)
    pipeline_text = _read(file)
    pipeline = parse_pipeline(
        file, pipeline_text, records_container=clients.settings.records_container
    )
    job_text, code = _read_job(file.parent / pipeline.job)
    others = {
        name: _read_job(file.parent / name)
        for stage, (name, _) in pipeline.jobs.items()
        if stage != "training"
    }
    content = [pipeline_text, job_text, *([] if code is None else [code]), *others.values()]
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:HASH_HEX_DIGITS]
    kept: dict[str, Any] = {"pipeline": pipeline_text, "job": job_text, "code": code}
    if others:
        kept["jobs"] = {name: text for name, (text, _) in others.items()}
    record_store.create(clients.records, _record(name, digest), kept)
    return Configuration(hash=digest, pipeline=pipeline)


def read_pipeline(clients: Clients, name: str, configuration: str) -> Pipeline:
    """The pipeline in a kept configuration.

    Raises:
        InvalidPipeline: its record was deleted, or this release does not know its schema.
    """
    document = _kept(clients, name, configuration)
    return parse_kept_pipeline(_file(clients, name), document["pipeline"])


def read_job_file(clients: Clients, pipeline: str, configuration: str, file: str) -> str:
    """The text of a job file in a kept configuration: `job.yml`, or that of a check.

    Raises:
        InvalidPipeline: its record was deleted.
    """
    document = _kept(clients, pipeline, configuration)
    return document.get("jobs", {}).get(file) or document["job"]


def has_code(clients: Clients, pipeline: str, configuration: str, file: str) -> bool:
    """Whether the code of a kept configuration is deployed, or its job names none.

    Raises:
        InvalidPipeline: its record was deleted.
    """
    code = _kept(clients, pipeline, configuration)["code"]
    deployed = _file(clients, pipeline).parent / file
    return code is None or (deployed.exists() and digest_of_code(deployed) == code)


def _kept(clients: Clients, pipeline: str, configuration: str) -> dict[str, Any]:
    name = _record(pipeline, configuration)
    document = record_store.read(clients.records, name)
    if document is None:
        raise InvalidPipeline(
            f"record {name} was deleted: redrive its run with today's files, or land again"
        )
    return document


def _file(clients: Clients, name: str) -> Path:
    return clients.settings.pipelines_folder / name / PIPELINE_FILE


def _read_job(file: Path) -> tuple[str, str | None]:
    """The text of a job file, and the digest of the code that it names."""
    return _read(file), digest_of_code(file)


def _read(file: Path) -> str:
    """The text of a deployed file; other errors of the disk than its absence may pass."""
    try:
        file.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InvalidPipeline(f"{file} is not deployed") from error
    return read_text(file, invalid=InvalidPipeline)


@functools.lru_cache(maxsize=64)
def _parse(file: Path, text: str, records_container: str) -> Pipeline:
    """Parse a deployed file; a landing asks for it at each wake-up."""
    return parse_pipeline(file, text, records_container=records_container)


def _record(pipeline: str, digest: str) -> str:
    return f"configurations/{pipeline}/{digest}.json"


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
    files: dict[str, Path] = {}
    for text in _texts_in(yaml_file.read_text("utf-8")):
        path = _local(yaml_file.parent, text)
        if path is None or path.resolve() in seen:
            continue
        seen.add(path.resolve())
        if path.is_dir():
            inside = (each for each in path.rglob("*") if _CACHES not in each.parts)
            files |= {
                f"{text}/{each.relative_to(path).as_posix()}": each
                for each in inside
                if each.is_file()
            }
            continue
        files[text] = path
        if path.suffix in (".yml", ".yaml"):
            files |= {f"{text}:{name}": each for name, each in _named_files(path, seen).items()}
    return files


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
