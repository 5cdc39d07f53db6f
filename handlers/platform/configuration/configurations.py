"""A pipeline's configuration: the deployed one by name, and kept ones by hash.

A batch uses the files that were deployed when it was frozen, and so does every attempt of its run.
`configurations/<pipeline>/<hash>.json` has the text of both files.
"""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path

from handlers.platform import record_store
from handlers.platform.clients import Clients
from handlers.platform.configuration.job_code import digest_of_code
from handlers.platform.configuration.located_yaml import read_text
from handlers.platform.configuration.pipeline_files import (
    PIPELINE_FILE,
    parse_kept_pipeline,
    parse_pipeline,
)
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.configurations import Configuration
from orchestrations.errors import InvalidPipeline

HASH_HEX_DIGITS = 16


def deployed_pipeline(clients: Clients, name: str) -> Pipeline:
    """The currently deployed `pipeline.yml`.

    Raises:
        InvalidPipeline: the pipeline is not deployed, or its file is malformed.
    """
    file = _file(clients, name)
    return _parse(file, _read(file), clients.settings.records_container)


def resolve_configuration(clients: Clients, name: str) -> Configuration:
    """Read the currently deployed `pipeline.yml` and `job.yml`, and store their text.

    The hash also covers the code that `job.yml` names. The code itself is not kept: a job is
    submitted with the code that is deployed at that time.

    Raises:
        InvalidPipeline: the pipeline is not deployed, or a file is malformed.
    """
    file = _file(clients, name)
    pipeline_text = _read(file)
    pipeline = parse_pipeline(
        file, pipeline_text, records_container=clients.settings.records_container
    )
    job_file = file.parent / pipeline.job
    job_text = _read(job_file)
    code = digest_of_code(job_file)
    content = json.dumps([pipeline_text, job_text, *([] if code is None else [code])])
    digest = hashlib.sha256(content.encode()).hexdigest()[:HASH_HEX_DIGITS]
    record_store.create(
        clients.records,
        _record(name, digest),
        {"pipeline": pipeline_text, "job": job_text, "code": code},
    )
    return Configuration(hash=digest, pipeline=pipeline)


def read_pipeline(clients: Clients, name: str, configuration: str) -> Pipeline:
    """The pipeline in a kept configuration.

    Raises:
        InvalidPipeline: its record was deleted, or this release does not know its schema.
    """
    document = _kept(clients, name, configuration)
    return parse_kept_pipeline(_file(clients, name), document["pipeline"])


def read_job_file(clients: Clients, pipeline: str, configuration: str) -> str:
    """The text of `job.yml` in a kept configuration.

    Raises:
        InvalidPipeline: its record was deleted.
    """
    return _kept(clients, pipeline, configuration)["job"]


def _kept(clients: Clients, pipeline: str, configuration: str) -> dict[str, str]:
    name = _record(pipeline, configuration)
    document = record_store.read(clients.records, name)
    if document is None:
        raise InvalidPipeline(
            f"record {name} was deleted: redrive its run with today's files, or land again"
        )
    return document


def _file(clients: Clients, name: str) -> Path:
    return clients.settings.pipelines_folder / name / PIPELINE_FILE


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
