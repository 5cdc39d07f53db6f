"""Activity `compare_reproduction`, and the code, environment and champion of a reproduction's job.

The files of the models are read in the datastore's container, as `job_outputs` does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from handlers.platform import tags
from handlers.platform.activity_adapter import activity
from handlers.platform.azure_ml import if_found
from handlers.platform.blob_pages import ListedBlob, list_page
from handlers.platform.clients import Clients
from handlers.platform.configuration.configurations import has_code
from handlers.platform.configuration.pipeline_files import COMMAND
from handlers.platform.run_records import read_metrics, read_run_record
from handlers.platform.tags import find_version, tags_of
from handlers.training.champions import Champion
from handlers.training.job_outputs import results_folder, trial_of
from orchestrations.contracts.reproductions import (
    CompareReproduction,
    Difference,
    Reproduces,
    ReproductionFacts,
)
from orchestrations.contracts.runs import RunRequest
from orchestrations.errors import NotReproducible
from orchestrations.names import results_record

if TYPE_CHECKING:
    from azure.ai.ml.entities import Command
    from azure.ai.ml.entities import Job as AzureMLJob
    from azure.storage.blob import ContainerClient

# A history holds the answer.
DIFFERENCES_TOLD = 30
JSON_LIMIT_BYTES = 1024 * 1024


def champion_of(clients: Clients, reproduces: Reproduces) -> Champion | None:
    """The version that the original was compared with; it may be archived by now.

    Raises:
        NotReproducible: it was deleted.
    """
    version = reproduces.champion
    if version is None:
        return None
    model = find_version(clients, reproduces.name, version)
    if model is None:
        raise NotReproducible(
            f"model {reproduces.name}:{version}, which {reproduces.model} was compared with, was "
            "deleted"
        )
    return Champion(version=version, path=str(model.path))


def find_original(clients: Clients, request: RunRequest, run: str) -> AzureMLJob:
    """The job that trained the model, if its code is still there.

    Azure ML keeps the code of a command job. Other jobs need what is deployed to be the same.

    Raises:
        NotReproducible: the job was deleted, or other code is deployed.
    """
    job = _job(clients, run)
    name, configuration = request.pipeline.name, request.configuration
    assert configuration is not None, "it is looked for before"
    if job.type != COMMAND and not has_code(clients, name, configuration, request.job_file):
        raise NotReproducible(
            f"other code is deployed than that of configuration {configuration}, and Azure ML "
            f"keeps the code of command jobs only, not that of {job.type} job {run}: deploy the "
            "release with that code"
        )
    return job


def pin(job: AzureMLJob, original: AzureMLJob) -> None:
    """Give a job the code and the environment's version of the original."""
    if job.type == COMMAND:
        ours, theirs = cast("Command", job), cast("Any", original)
        ours.code, ours.environment = theirs.code, theirs.environment


@activity
def compare_reproduction(clients: Clients, request: CompareReproduction) -> ReproductionFacts:
    """Compare what two trainings were and left: their settings, metrics and models' files.

    Raises:
        NotReproducible: a job was deleted.
    """
    then = _Left.read(clients, request.pipeline, request.reproduces.run)
    now = _Left.read(clients, request.pipeline, request.run)
    settings = [
        Difference(what=name, original=then.settings[name], again=value)
        for name, value in now.settings.items()
        if value != then.settings[name]
    ]
    metrics = {
        name: (then.metrics.get(name), now.metrics.get(name))
        for name in sorted(then.metrics.keys() | now.metrics.keys())
    }
    files = sorted(then.files.keys() | now.files.keys())
    differing = [each for name in files for each in _compare(name, then, now)]
    return ReproductionFacts(
        files=len(files),
        settings=tuple(settings),
        metrics={name: pair for name, pair in metrics.items() if pair[0] != pair[1]},
        differing=tuple(differing[:DIFFERENCES_TOLD]),
        more=max(len(differing) - DIFFERENCES_TOLD, 0),
    )


@dataclass(frozen=True, kw_only=True)
class _Left:
    """What a training was, and what it left."""

    settings: Mapping[str, str | None]
    metrics: Mapping[str, float]
    container: ContainerClient
    files: Mapping[str, ListedBlob]
    """Path in the model's folder → blob."""

    @classmethod
    def read(cls, clients: Clients, pipeline: str, run: str) -> _Left:
        job, record = _job(clients, run), read_run_record(clients, run)
        trial, used = trial_of(clients, job), None if record is None else record.compute
        results = results_folder(pipeline, run) if trial is None else f"azureml/{trial}/results/"
        container = tags_of(job).get(tags.RESULTS_CONTAINER)
        program: Any = getattr(job, "trial", None) or job
        settings = {
            "environment": getattr(program, "environment", None),
            "code": getattr(program, "code", None),
            "compute": used and f"{used.nodes} x {used.size} ({used.cluster}, {used.priority})",
            "attempt, which resumes the one before": tags_of(job).get(tags.ATTEMPT),
        }
        storage = clients.workspace_blobs.get_container_client(
            container or str(clients.default_datastore.container_name)
        )
        folder = f"{results}model/"
        return cls(
            settings={name: value and str(value) for name, value in settings.items()},
            metrics=read_metrics(clients, results_record(run)),
            container=storage,
            files={it.name.removeprefix(folder): it for it in _list(storage, folder)},
        )

    def text(self, path: str) -> Iterable[bytes]:
        return self.container.download_blob(self.files[path].name).chunks()


def _job(clients: Clients, run: str) -> AzureMLJob:
    job = if_found(clients.ml.jobs.get, run)
    if job is None:
        raise NotReproducible(f"job {run} was deleted in Azure ML")
    return job


def _list(container: ContainerClient, folder: str) -> Iterator[ListedBlob]:
    marker: str | None = None
    while True:
        page = list_page(container, folder, marker=marker)
        yield from (each for each in page.blobs if not each.is_directory)
        marker = page.next_marker
        if marker is None:
            return


def _compare(path: str, then: _Left, now: _Left) -> Iterator[Difference]:
    """What differs in a file of the models."""
    old, new = then.files.get(path), now.files.get(path)
    if old is not None and new is not None:
        if old.size == new.size and (
            old.md5 == new.md5
            if old.md5 and new.md5
            else _digest(then.text(path)) == _digest(now.text(path))
        ):
            return
        if path.endswith(".json") and max(old.size, new.size) <= JSON_LIMIT_BYTES:
            before, after = _entries(then, path), _entries(now, path)
            if before is not None and after is not None:
                for key in sorted(before.keys() | after.keys()):
                    if before.get(key) != after.get(key):
                        was, is_ = before.get(key), after.get(key)
                        yield Difference(what=f"{path}: {key}", original=was, again=is_)
                return
    was, is_ = (each and f"{each.size} bytes, {each.md5 or each.etag}" for each in (old, new))
    yield Difference(what=f"file {path}", original=was, again=is_)


def _digest(chunks: Iterable[bytes]) -> bytes:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.digest()


def _entries(left: _Left, path: str) -> dict[str, str] | None:
    """Key → value of a JSON object and the objects in it, without the metrics that it repeats."""
    try:
        document = json.loads(b"".join(left.text(path)))
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    found: dict[str, str] = {}
    for key, value in cast("dict[str, Any]", document).items():
        if isinstance(value, dict):
            inner = cast("dict[str, Any]", value)
            if left.metrics and left.metrics.items() <= inner.items():
                continue
            found |= {f"{key}.{name}": json.dumps(each) for name, each in inner.items()}
        else:
            found[key] = json.dumps(value)
    return {key: value[:200] for key, value in found.items()}
