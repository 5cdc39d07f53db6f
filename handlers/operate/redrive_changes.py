"""Changes that a caller may make to a dead-lettered run, and the resulting run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Literal

from handlers.landing.forgetting import (
    Content,
    content_of_line,
    find_forgotten_in,
    read_contents,
)
from handlers.landing.manifest_parts import Link, hash_link
from handlers.platform.clients import Clients
from handlers.platform.configuration.configurations import resolve_configuration
from handlers.platform.configuration.pipeline_files import load_queues
from handlers.platform.manifests import MANIFEST_FILE, ManifestWriter, manifest_folder, read_chunks
from handlers.training.retries import Changes
from orchestrations.configuration.pipeline import Limits, Pipeline
from orchestrations.configuration.queues import mismatch
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.manifest import VERSION_HEX_DIGITS, path_of
from orchestrations.contracts.runs import Redrive, RunRequest
from orchestrations.errors import InvalidPipeline, InvalidRequest, PermanentError, name_some

# Changes of an earlier redrive are kept.
CARRIED_ON = ("compute", "limits", "last_attempt", "job", "files_left_out")

RefusalKind = Literal["invalid-request", "already-redriven", "content-claimed", "content-forgotten"]


class RedriveRefused(PermanentError):
    """A redrive is refused; the message says how to correct the request."""

    def __init__(self, message: str, *, kind: RefusalKind, where: str) -> None:
        super().__init__(message)
        self.kind: RefusalKind = kind
        self.where = where
        """The invalid key of the request."""


def changed_request(
    clients: Clients, request: RunRequest, changes: Changes, redrive: Redrive
) -> RunRequest:
    """The next attempt of a dead-lettered run, with changes, which are added to `redrive`.

    Idempotent: it only writes records that are named by their content.

    Raises:
        RedriveRefused: the dataset lacks one of the files or has no others, the compute option
            contradicts `queues.yml`, or the pipeline is not deployed.
    """
    pipeline, dataset, before = request.pipeline, request.dataset, request.redrive
    lineage: dict[str, Any] = {}
    if before is not None:
        lineage = {name: getattr(before, name) for name in CARRIED_ON}
    if changes.compute is not None:
        lineage["compute"] = changes.compute
        pipeline = pipeline.model_copy(update={"compute": [changes.compute]})
        _check_queue(clients, pipeline)
    if changes.limits is not None:
        asked = changes.limits.model_dump(exclude_none=True)
        lineage["limits"] = Limits(**pipeline.limits.model_dump() | asked)
        pipeline = pipeline.model_copy(update={"limits": lineage["limits"]})
    if changes.attempts is not None:
        lineage["last_attempt"] = request.attempt + changes.attempts
    if changes.job is not None:
        lineage["job"] = _deployed_configuration(clients, pipeline.name)
    if changes.without_files is not None:
        try:
            dataset = leave_out(clients, pipeline.name, dataset, changes.without_files)
        except FilesUnknown as error:
            raise RedriveRefused(
                str(error), kind="invalid-request", where="changes.without_files"
            ) from error
        lineage["files_left_out"] = lineage.get("files_left_out", 0) + len(changes.without_files)
    return request.model_copy(
        update={
            "pipeline": pipeline,
            "dataset": dataset,
            # The smaller dataset has not been trained on yet.
            "round": request.round if changes.without_files is None else 1,
            "attempt": request.attempt + 1,
            "redrive": redrive.model_copy(update=lineage),
        }
    )


def _check_queue(clients: Clients, pipeline: Pipeline) -> None:
    """Refuse a compute option whose nodes admission must count but could not."""
    found = mismatch(pipeline, load_queues(clients.settings.pipelines_folder))
    if found is not None:
        _, problem = found
        raise RedriveRefused(problem, kind="invalid-request", where="changes.compute")


def _deployed_configuration(clients: Clients, pipeline: str) -> str:
    try:
        return resolve_configuration(clients, pipeline).hash
    except InvalidPipeline as error:
        raise RedriveRefused(str(error), kind="invalid-request", where="changes.job") from error


class FilesUnknown(InvalidRequest):
    """The dataset lacks the named files, or has no others."""


def leave_out(clients: Clients, pipeline: str, dataset: Dataset, paths: Sequence[str]) -> Dataset:
    """Freeze a dataset without some of its files, and without forgotten contents, as a new dataset.

    Paths are those of the manifest. Idempotent: the same files give the same version and manifest.

    Raises:
        FilesUnknown: the dataset lacks one of the files, or nothing would be left.
    """
    forgotten = read_contents(clients)
    while True:
        smaller = _leave_out(clients, pipeline, dataset, frozenset(paths), forgotten.keys())
        # As a freeze does: a request to forget that came before the commit is seen here, and one
        # that comes later sees the manifest.
        before, forgotten = forgotten, read_contents(clients)
        if forgotten == before:
            return smaller
        find_forgotten_in(clients, forgotten, smaller.manifest_path)


def _leave_out(
    clients: Clients,
    pipeline: str,
    dataset: Dataset,
    left_out: Collection[str],
    forgotten: Collection[Content],
) -> Dataset:
    matched: set[str] = set()

    def lines() -> Iterator[bytes]:
        chunks = read_chunks(clients, dataset.manifest_path)
        return _kept_lines(chunks, left_out, forgotten, matched)

    kept = hash_link(None, Link(lines()))
    unknown = sorted(set(left_out) - matched)
    if unknown:
        raise FilesUnknown(
            f"dataset version {dataset.version} has no {name_some(unknown)}: give paths as "
            f"{dataset.manifest_path}/{MANIFEST_FILE} has them, relative to the pipeline's prefix"
        )
    if not kept.blobs:
        raise FilesUnknown(f"nothing would be left of dataset version {dataset.version}")
    version = kept.link[:VERSION_HEX_DIGITS]
    folder = manifest_folder(pipeline, version)
    # The version also names the blocks, since every writer of this version writes the same lines.
    writer = ManifestWriter(clients.records, folder, version)
    if not writer.is_written:
        writer.commit(writer.stage(lines()))
    return dataset.model_copy(
        update={
            "version": version,
            "blobs": kept.blobs,
            "bytes": kept.bytes,
            "quarantined": dataset.quarantined + dataset.blobs - kept.blobs,
            "manifest_path": folder,
        }
    )


def _kept_lines(
    chunks: Iterable[bytes],
    paths: Collection[str],
    forgotten: Collection[Content],
    matched: set[str],
) -> Iterator[bytes]:
    """The lines of other paths and contents; adds the `paths` that have a line to `matched`."""
    for chunk in chunks:
        lines: list[bytes] = []
        for line in chunk.splitlines(keepends=True):
            path = path_of(line)
            if path in paths:
                matched.add(path)
            elif not (forgotten and content_of_line(line) in forgotten):
                lines.append(line)
        yield b"".join(lines)
