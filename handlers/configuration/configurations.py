"""Activity `resolve_configuration`: stores a run's pipeline and job files under their hash.

Every attempt of a run uses the files that were deployed when its batch was frozen.
`configurations/<pipeline>/<hash>.json` has the text of both.
"""

from __future__ import annotations

import hashlib
import json

from handlers.configuration import record_store
from handlers.configuration.clients import Clients
from handlers.configuration.located_yaml import read_text
from handlers.configuration.pipeline_files import PIPELINE_FILE, parse_pipeline
from handlers.durable.activity_adapter import activity
from orchestrations.contracts.configurations import Configuration, ResolveConfiguration
from orchestrations.errors import InvalidPipeline

HASH_HEX_DIGITS = 16


@activity
def resolve_configuration(clients: Clients, request: ResolveConfiguration) -> Configuration:
    """Read the currently deployed `pipeline.yml` and `job.yml`, and store their text.

    Raises:
        InvalidPipeline: the pipeline is not deployed, or a file is malformed.
    """
    file = clients.settings.pipelines_folder / request.pipeline / PIPELINE_FILE
    pipeline_text = read_text(file, invalid=InvalidPipeline)
    pipeline = parse_pipeline(
        file, pipeline_text, records_container=clients.settings.records_container
    )
    job_text = read_text(file.parent / pipeline.job, invalid=InvalidPipeline)
    content = json.dumps([pipeline_text, job_text])
    digest = hashlib.sha256(content.encode()).hexdigest()[:HASH_HEX_DIGITS]
    record_store.create(
        clients.records,
        _record(request.pipeline, digest),
        {"pipeline": pipeline_text, "job": job_text},
    )
    return Configuration(hash=digest, pipeline=pipeline)


def read_job_file(clients: Clients, pipeline: str, configuration: str) -> str:
    """The text of `job.yml` in a configuration.

    Raises:
        InvalidPipeline: its record was deleted.
    """
    name = _record(pipeline, configuration)
    document = record_store.read(clients.records, name)
    if document is None:
        raise InvalidPipeline(f"record {name} was deleted: redrive the run with today's files")
    return document["job"]


def _record(pipeline: str, digest: str) -> str:
    return f"configurations/{pipeline}/{digest}.json"
