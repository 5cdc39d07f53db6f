"""Activity `read_results`: the results folder of a job, or why its data failed it.

Reads the datastore's container directly: the SDK's download needs the run history, a shared key and
a hard-coded host name.

A job can fail because of its data before its program could write `error.json`: Azure ML's data
runtime downloads inputs first. The texts are those of its library, azureml-dataprep-rslex 2.26;
they have no published list.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from azure.core.exceptions import ResourceNotFoundError
from pydantic import BaseModel, ValidationError

from handlers.platform import record_store
from handlers.platform.activity_adapter import activity
from handlers.platform.azure_ml_jobs import failure_message, find_trial
from handlers.platform.blob_pages import list_page
from handlers.platform.clients import Clients
from handlers.platform.manifests import read_manifest_from
from handlers.platform.run_records import read_cancel_request, read_claim, read_run_record
from handlers.training.model_files import hash_of_model
from orchestrations.contracts.base import Failure, problems_of
from orchestrations.contracts.checked import Checked, ChecksFile
from orchestrations.contracts.comparison import Comparison
from orchestrations.contracts.manifest import ManifestLine
from orchestrations.contracts.runs import RunRequest
from orchestrations.contracts.training import ReadResults, Results
from orchestrations.errors import (
    DataChanged,
    DataRejected,
    InitialModelMismatch,
    InvalidResults,
    InvalidSetting,
    JobFailed,
    JobRejected,
    LandfallError,
    PermanentError,
    shorten,
)
from orchestrations.names import (
    claim_record,
    results_folder,
    results_record,
    stage_job,
    trial_folder,
)

# The lines are kept in memory, 60 MB for so many.
CHECKED_BLOBS = 200_000
# A zone may hold more than the dataset: other partitions. A page has 5,000 blobs.
LISTED_PAGES = 100
_CHANGED = re.compile(
    r"source was modified|file was modified during read|size changed during download"
    r"|ConditionNotMet|StreamAccess\.NotFound",
    re.IGNORECASE,
)
# In Rust's words: a program in Python says "[Errno 36]".
_NAME_TOO_LONG = re.compile(r"file ?name too long \(os error 36\)", re.IGNORECASE)
METRICS_FILE = "metrics.json"
ERROR_FILE = "error.json"
CHECKS_FILE = "checks.json"
COMPARISON_FILE = "comparison.json"
COMPARISON_LIMIT_BYTES = 64 * 1024
CHECKS_LIMIT_BYTES = 64 * 1024
# A sentence of an alert, of which the custom status has a part.
RULES_TOLD = 5
MESSAGE_CHARACTERS = 1_000
# All metrics become properties of the registered model.
METRICS_LIMIT_BYTES = 32 * 1024
# Trainers write only an excerpt of the problems; this limit bounds the app's memory.
ERROR_LIMIT_BYTES = 16 * 1024 * 1024
LIMITS: Mapping[str, tuple[int, type[LandfallError]]] = {
    METRICS_FILE: (METRICS_LIMIT_BYTES, InvalidResults),
    ERROR_FILE: (ERROR_LIMIT_BYTES, JobFailed),
    CHECKS_FILE: (CHECKS_LIMIT_BYTES, InvalidResults),
    COMPARISON_FILE: (COMPARISON_LIMIT_BYTES, InvalidResults),
}
PERMANENT = frozenset(kind.__name__ for kind in (DataRejected, DataChanged, InitialModelMismatch))


def find_data_error(clients: Clients, pipeline: str, run: str, job: str) -> PermanentError | None:
    """The error of a failed job without `error.json`, if its data is at fault.

    - `DataChanged`: a file was overwritten or deleted while the job downloaded it. Only if the zone
      holds other content now: where the same content was written again, another attempt succeeds,
      and no later batch would train on it.
    - `JobRejected`: a blob's name cannot be the name of a file.
    """
    message = failure_message(clients, job)
    if message is None:
        return None
    if _NAME_TOO_LONG.search(message):
        return JobRejected(
            f"{message}; rename that blob (its name does not fit into the file system of a node), "
            "or mount the input instead of downloading it"
        )
    if not _CHANGED.search(message):
        return None
    record = read_run_record(clients, run)
    change = record and find_change(clients, pipeline, record.status.dataset_version)
    return DataChanged(f"{change} while the job read it: {message}") if change else None


def find_change(clients: Clients, pipeline: str, version: str) -> str | None:
    """What happened to a file of a dataset version since it was frozen, in words.

    None: nothing; or dataset or zone are too large, or jobs read copies, which nobody overwrites.
    """
    claimed = read_claim(clients, claim_record(pipeline, version))
    if claimed is None:
        return None
    request = claimed.request
    if request.dataset.copies is not None or request.dataset.blobs > CHECKED_BLOBS:
        return None
    listed = _listed(clients, request)
    if listed is None:
        return None
    frozen = {line.path: line for line in read_manifest_from(clients, request.dataset, "")}
    for path, content in listed.items():
        line = frozen.pop(path, None)
        if line is not None and content != _content(line):
            return f"{path!r} was overwritten"
    deleted = next(iter(frozen), None)
    return None if deleted is None else f"{deleted!r} was deleted"


def _content(line: ManifestLine) -> tuple[int, str]:
    """What identifies the content of a file: its size, and its MD5 or else its ETag."""
    return line.size, line.md5 or line.etag


def _listed(clients: Clients, request: RunRequest) -> dict[str, tuple[int, str]] | None:
    """Path → content, of all blobs in the zone or partition; None if they are too many."""
    source, partition = request.pipeline.source, request.dataset.partition
    folder = source.prefix + ("" if partition is None else source.partition(partition).prefix)
    container = clients.blobs.get_container_client(source.container)
    listed: dict[str, tuple[int, str]] = {}
    marker: str | None = None
    for _ in range(LISTED_PAGES):
        page = list_page(container, folder, marker=marker)
        for blob in page.blobs:
            listed[blob.name.removeprefix(source.prefix)] = blob.size, blob.md5 or blob.etag
        marker = page.next_marker
        if marker is None:
            return listed
    return None


File = TypeVar("File", bound=BaseModel)


class FileProblem(BaseModel):
    """A file of the dataset that the trainer refused; its path is relative to the prefix."""

    path: str
    reason: str = ""


class TrainerError(BaseModel):
    """`error.json` as docs/architecture.md describes it; other keys are ignored."""

    type: str
    message: str
    files: list[FileProblem] = []


@activity
def read_results(clients: Clients, request: ReadResults) -> Results:
    """Read what a job has left, and record it.

    Of a completed job: `metrics.json` with `comparison.json`, or `checks.json` of a data check; of
    a failed one: `error.json`. All but `checks.json` may be missing. A job whose data could not be
    downloaded has no `error.json`: then its error is Azure ML's. The result holds the requested
    metrics.
    Numbers that are not finite are left out, since JSON has none: the gate then reports the metric
    as missing.

    Raises:
        InvalidResults: a file of a completed job is malformed, or `checks.json` is missing.
        JobFailed: `error.json` is malformed; the job may have been killed while writing it.
        InvalidSetting: `WorkspaceStorage` is not the account to which jobs write.
    """
    # An error is where `quarantine_files` looks. What a check leaves must not replace the metrics.
    record = results_record(request.run, request.stage if request.completed else "training")
    error: TrainerError | None = None
    failure: Failure | None = None
    metrics: dict[str, float] = {}
    files: str | None = None
    checked: Checked | None = None
    comparison: Comparison | None = None
    if not request.completed:
        text, _ = _read(clients, request, ERROR_FILE)
        if text is not None:
            error = parse_trainer_error(text, _where(ERROR_FILE, request))
            failure = as_failure(error)
        elif found := find_data_error(clients, request.pipeline, request.run, _job(request)):
            error = TrainerError(type=type(found).__name__, message=str(found))
            failure = Failure(type=error.type, message=shorten(error.message), permanent=True)
    elif request.stage == "data-check":
        checked = _read_checks(clients, request)
    else:
        text, folder = _read(clients, request, METRICS_FILE)
        # A run that reconciliation starts again is judged again: by the model that was read first.
        known = record_store.read(clients.records, record) or {}
        files = known.get("model") or hash_of_model(
            clients.workspace_blobs, request.container, folder
        )
        if text is not None:
            metrics = parse_metrics(text, _where(METRICS_FILE, request))
        # Beside it, not asked for elsewhere: most jobs write none.
        if text is not None and request.stage == "training":
            comparison = _read_comparison(clients, request, folder)
    document = {"metrics": metrics, "error": None if error is None else error.model_dump()}
    if files is not None:
        document |= {"model": files}
    if checked is not None:
        document |= {"checked": checked.to_dict()}
    if comparison is not None:
        document |= {"comparison": comparison.model_dump(mode="json")}
    record_store.replace(clients.records, record, document)
    return Results(
        metrics={name: metrics[name] for name in request.metrics if name in metrics},
        failure=failure,
        bad_files=0 if error is None else len(error.files),
        record=record,
        cancel=read_cancel_request(clients, request.run),
        checked=checked,
        comparison=comparison,
    )


def _read_comparison(clients: Clients, request: ReadResults, folder: str) -> Comparison | None:
    text = _read_blob(clients, request, folder, COMPARISON_FILE)
    where = _where(COMPARISON_FILE, request)
    return None if text is None else parse_file(Comparison, text, where)


def _read_checks(clients: Clients, request: ReadResults) -> Checked:
    (text, _), where = _read(clients, request, CHECKS_FILE), _where(CHECKS_FILE, request)
    if text is None:
        raise InvalidResults(
            f"the data check could not say whether the data is right: its job {_job(request)} "
            f"completed and left no {CHECKS_FILE} in its output `results`"
        )
    document = parse_file(ChecksFile, text, where)
    failed = [each for each in document.checks if not each.passed]
    told = "; ".join(str(each) for each in failed[:RULES_TOLD])
    more = len(failed) - RULES_TOLD
    told += f"; and {more} more" if more > 0 else ""
    verdict = "the data check passed" if document.passed else "the data check failed"
    folder = results_folder(request.pipeline, _job(request))
    return Checked(
        passed=document.passed,
        message=shorten(f"{verdict}: {told}" if told else verdict, MESSAGE_CHARACTERS),
        rules=tuple(sorted(document.checks, key=lambda it: it.passed)),
        report=document.report and f"{request.container}/{folder}{document.report}",
    )


def parse_file(kind: type[File], text: bytes, where: str) -> File:
    """Parse a `checks.json` or a `comparison.json`.

    Raises:
        InvalidResults: it is not what its contract describes; names `where` and the keys.
    """
    try:
        return kind.model_validate(_parse(text, where, InvalidResults))
    except ValidationError as error:
        problems = shorten(problems_of(error, whole="document"))
        raise InvalidResults(f"{where} is malformed: {problems}") from error


def parse_metrics(text: bytes, where: str) -> dict[str, float]:
    """The finite numbers of a `metrics.json`.

    Raises:
        InvalidResults: it is not a flat object of numbers; the message begins with `where`.
    """
    document = _parse(text, where, InvalidResults)
    if not isinstance(document, dict):
        raise InvalidResults(f"{where} is not a JSON object")
    metrics: dict[str, float] = {}
    for name, value in cast("Mapping[str, Any]", document).items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise InvalidResults(f"{where}: {name!r} is not a number")
        try:
            number = float(value)
        except OverflowError:  # an integer beyond 1.8e308
            continue
        if math.isfinite(number):
            metrics[name] = number
    return metrics


def parse_trainer_error(text: bytes, where: str) -> TrainerError:
    """Parse an `error.json`.

    Raises:
        JobFailed: it is not what docs/architecture.md describes; the message begins with `where`.
    """
    try:
        return TrainerError.model_validate(_parse(text, where, JobFailed))
    except ValidationError as error:
        problems = shorten(problems_of(error, whole="document"))
        raise JobFailed(f"{where} is malformed: {problems}") from error


def as_failure(error: TrainerError) -> Failure:
    """The trainer's error as a failure of the run.

    Only the types in `PERMANENT` are kept: another name that a program gives its error must not be
    mistaken for one of Landfall's types.
    """
    permanent = error.type in PERMANENT
    message = error.message if permanent else f"{error.type}: {error.message}"
    return Failure(
        type=error.type if permanent else JobFailed.__name__,
        message=shorten(message),
        permanent=permanent,
    )


def _where(file: str, request: ReadResults) -> str:
    return f"{file} of run {_job(request)}"


def _job(request: ReadResults) -> str:
    return stage_job(request.run, request.stage)


def _parse(text: bytes, where: str, error_type: type[LandfallError]) -> Any:
    try:
        return record_store.loads_unique(text)
    except (ValueError, RecursionError) as error:
        raise error_type(f"{where} is not valid JSON: {error}") from error


def _read(clients: Clients, request: ReadResults, file: str) -> tuple[bytes | None, str]:
    """A file in the job's results folder, None if it is missing, and that folder.

    For a sweep, the file is from its best trial, at Azure ML's default path of an output.
    """
    job = _job(request)
    folder = results_folder(request.pipeline, job)
    content = _read_blob(clients, request, folder, file)
    if content is None and (trial := find_trial(clients, job)) is not None:
        folder = trial_folder(trial)
        content = _read_blob(clients, request, folder, file)
    return content, folder


def _read_blob(clients: Clients, request: ReadResults, folder: str, file: str) -> bytes | None:
    from azure.storage.blob import StorageErrorCode  # noqa: PLC0415 - see handlers.platform.clients

    container = clients.workspace_blobs.get_container_client(request.container)
    where = _where(file, request)
    try:
        # No range, since an empty blob has none. The first request reads 32 MiB at most.
        download = container.download_blob(folder + file)
        limit_bytes, error_type = LIMITS[file]
        if download.size > limit_bytes:
            raise error_type(f"{where} has {download.size} bytes; {limit_bytes} are allowed")
        return download.readall()
    except ResourceNotFoundError as error:
        if getattr(error, "error_code", None) != StorageErrorCode.CONTAINER_NOT_FOUND:
            return None
        raise InvalidSetting(
            f"{where}: the account of app setting WorkspaceStorage has no container "
            f"{request.container!r}; it must be the account of the workspace's default datastore"
        ) from error
