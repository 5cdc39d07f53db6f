"""Activity `compare_reproduction`, and the code, environment and champion of a reproduction's job.

The files of the models are read in the datastore's container, as `job_outputs` does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from handlers.platform import tags
from handlers.platform.activity_adapter import activity
from handlers.platform.azure_ml import if_found
from handlers.platform.azure_ml_jobs import trial_of
from handlers.platform.blob_pages import ListedBlob, list_page
from handlers.platform.clients import Clients
from handlers.platform.configuration.azure_ml_files import COMMAND
from handlers.platform.configuration.configurations import has_code
from handlers.platform.run_records import read_metrics, read_run_record
from handlers.platform.tags import find_version, tags_of
from handlers.training.champions import Champion
from orchestrations.contracts.reproductions import (
    CompareReproduction,
    Difference,
    Reproduces,
    ReproductionFacts,
)
from orchestrations.contracts.runs import RunRequest
from orchestrations.errors import NotReproducible, shorten
from orchestrations.names import judged_folder, results_record

if TYPE_CHECKING:
    from azure.ai.ml.entities import Job as AzureMLJob
    from azure.storage.blob import ContainerClient

DIFFERENCES_TOLD = 30
JSON_LIMIT_BYTES = 1024 * 1024
# What can be read within the activity's limit, of files whose MD5 the service does not know.
READ_LIMIT_BYTES = 1024**3


def champion_of(clients: Clients, reproduces: Reproduces) -> Champion | None:
    """The version that the original was compared with; it may be archived by now.

    Raises:
        NotReproducible: it was deleted.
    """
    if reproduces.champion is None:
        return None
    model = find_version(clients, reproduces.name, reproduces.champion)
    if model is None:
        what = (
            f"{reproduces.name}:{reproduces.champion}, which {reproduces.model} was compared with"
        )
        raise NotReproducible(f"model {what}, was deleted")
    return Champion(version=reproduces.champion, path=str(model.path))


def find_original(clients: Clients, request: RunRequest, run: str) -> AzureMLJob:
    """The job that trained the model.

    Raises:
        NotReproducible: it was deleted, or its code is gone: Azure ML keeps that of command jobs.
    """
    job, configuration = _job(clients, run), str(request.configuration)
    if job.type == COMMAND or has_code(
        clients, request.pipeline.name, configuration, request.job_file
    ):
        return job
    raise NotReproducible(
        f"other code is deployed than that of configuration {configuration}, and Azure ML keeps "
        f"the code of command jobs only, not that of {job.type} job {run}: deploy it again"
    )


def pin(job: AzureMLJob, original: AzureMLJob) -> None:
    """Give a command job the code and the environment's version of the original."""
    if job.type == COMMAND:
        ours, theirs = cast("Any", job), cast("Any", original)
        ours.code, ours.environment = theirs.code, theirs.environment


@activity
def compare_reproduction(clients: Clients, request: CompareReproduction) -> ReproductionFacts:
    """Compare what two trainings were and left: their settings, metrics and models' files.

    Raises:
        NotReproducible: a job was deleted.
    """
    runs = (request.reproduces.run, request.run)
    jobs = [_job(clients, run) for run in runs]
    metrics = [read_metrics(clients, results_record(run)) for run in runs]
    then, now = (
        _read_model(clients, request.pipeline, *each) for each in zip(jobs, metrics, strict=True)
    )
    files = list(_differences(then, now))
    settings = _differences(*(_settings(clients, job) for job in jobs))
    shown = ({f"metric {name}": repr(each[name]) for name in each} for each in metrics)
    differences = [*settings, *_differences(*shown), *files]
    return ReproductionFacts(
        files=len(now),
        files_differ=bool(files),
        metrics={name: (metrics[0].get(name), metrics[1].get(name)) for name in request.metrics},
        differences=tuple(differences[:DIFFERENCES_TOLD]),
        more=max(len(differences) - DIFFERENCES_TOLD, 0),
    )


def _job(clients: Clients, run: str) -> AzureMLJob:
    job = if_found(clients.ml.jobs.get, run)
    if job is None:
        raise NotReproducible(f"job {run} was deleted in Azure ML")
    return job


def _differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Difference]:
    for what in sorted(then.keys() | now.keys()):
        pair = [None if it.get(what) is None else shorten(str(it[what])) for it in (then, now)]
        if then.get(what) != now.get(what):
            yield Difference(what=what, original=pair[0], again=pair[1])


def _settings(clients: Clients, job: AzureMLJob) -> Mapping[str, Any]:
    record = read_run_record(clients, str(job.name))
    used = None if record is None else record.compute
    program: Any = getattr(job, "trial", None) or job
    return {
        "environment": getattr(program, "environment", None),
        "code": getattr(program, "code", None),
        "compute": used and f"{used.nodes} x {used.size} ({used.cluster}, {used.priority})",
        "attempt, which resumes the one before": tags_of(job).get(tags.ATTEMPT),
    }


def _read_model(
    clients: Clients, pipeline: str, job: AzureMLJob, metrics: Mapping[str, float]
) -> dict[str, str]:
    """What is in a model's folder: file → size and MD5; of a JSON file, key → value."""
    trial, default = trial_of(clients, job), str(clients.default_datastore.container_name)
    results = judged_folder(pipeline, str(job.name), trial)
    folder, entries = f"{results}model/", dict[str, str]()
    container = clients.workspace_blobs.get_container_client(
        tags_of(job).get(tags.RESULTS_CONTAINER) or default
    )
    blobs = list(_list(container, folder))
    is_read = sum(blob.size for blob in blobs if not blob.md5) <= READ_LIMIT_BYTES
    for blob in blobs:
        path = blob.name.removeprefix(folder)
        if path.endswith(".json") and blob.size <= JSON_LIMIT_BYTES:
            text = container.download_blob(blob.name).readall()
            entries |= {f"{path}{key}": value for key, value in _entries(text, metrics)}
            continue
        unknown = f"no MD5, and too large to be read (ETag {blob.etag})"
        md5 = blob.md5 or (_md5(container, blob.name) if is_read else unknown)
        entries[f"file {path}"] = f"{blob.size} bytes, {md5}"
    return entries


def _list(container: ContainerClient, folder: str) -> Iterator[ListedBlob]:
    page = list_page(container, folder)
    while True:
        yield from (each for each in page.blobs if not each.is_directory)
        if page.next_marker is None:
            return
        page = list_page(container, folder, marker=page.next_marker)


def _md5(container: ContainerClient, name: str) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    for chunk in container.download_blob(name).chunks():
        digest.update(chunk)
    return digest.hexdigest()


def _entries(text: bytes, metrics: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """The keys and values of a JSON file, two levels deep, without an object that has `metrics`."""
    try:
        document = json.loads(text)
    except ValueError:
        document = text.decode(errors="replace")
    for key, value in (document if isinstance(document, dict) else {"": document}).items():
        if isinstance(value, dict) and not metrics.items() <= value.items():
            yield from ((f": {key}.{name}", json.dumps(value[name])) for name in value)
        elif not isinstance(value, dict) or not metrics:
            yield f": {key}", json.dumps(value)
