"""The files of a model version: where they lie, and copies of them with the same bits.

A copy streams through this process in blocks; each block goes to the other account with its MD5,
which the service checks. Blocks that an execution before a crash has left are adopted.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError

from handlers.platform import tags
from handlers.platform.clients import Clients
from handlers.platform.tags import tags_of
from handlers.training.champions import registered_at
from handlers.training.job_outputs import results_folder
from orchestrations.contracts.base import Contract
from orchestrations.errors import PromotionRefused

if TYPE_CHECKING:
    from azure.ai.ml.entities import Model as AzureMLModel
    from azure.storage.blob import BlobClient, ContainerClient

_DATASTORE = re.compile(r"datastores/(?P<name>[^/]+)/paths/(?P<path>.+)$")
_OUTPUT = re.compile(r"jobs/(?P<job>[^/]+)/outputs/results/paths/(?P<path>.+)$")
SHA256, SOURCE_ETAG = "sha256", "source_etag"
"""Metadata of a copy."""


class ModelFile(Contract):
    """A file of a model version."""

    path: str
    """Relative to the model's folder."""
    size: int
    md5: str | None
    """Hex; None if the service keeps none, as for some files that were uploaded in blocks."""
    etag: str


def source_folder(clients: Clients, model: AzureMLModel) -> tuple[ContainerClient, str]:
    """Container and folder (with a slash at its end) of a version's files.

    Raises:
        PromotionRefused: they lie in an account that the app does not read.
    """
    path, name = str(model.path), f"{model.name}:{model.version}"
    default = clients.default_datastore
    if match := _OUTPUT.search(path):
        found = tags_of(model)
        job, is_run = match["job"], match["job"] == found.get(tags.RUN)
        # Of a sweep, the trial's output is at Azure ML's default path.
        folder = results_folder(found[tags.PIPELINE], job) if is_run else f"azureml/{job}/results/"
        container = clients.workspace_blobs.get_container_client(default.container_name)
        return container, f"{folder}{match['path'].strip('/')}/"
    match = _DATASTORE.search(path)
    if match is None:
        raise PromotionRefused(f"the files of {name} lie in {path}, which is in no datastore")
    store: Any = default
    if match["name"] != default.name:
        store = clients.ml.datastores.get(match["name"])
    for service in (clients.workspace_blobs, clients.blobs):
        if store is default or service.account_name == store.account_name:
            container = service.get_container_client(store.container_name)
            return container, f"{match['path'].strip('/')}/"
    raise PromotionRefused(
        f"the files of {name} lie in datastore {match['name']!r}, on account "
        f"{store.account_name!r}, which the app does not read"
    )


def list_files(clients: Clients, model: AzureMLModel) -> Sequence[ModelFile]:
    """The files of a version, sorted by path, as they were when it was registered.

    Raises:
        PromotionRefused: there are none, or a file was written after the registration.
    """
    container, folder = source_folder(clients, model)
    name, since = f"{model.name}:{model.version}", registered_at(model)
    found: list[ModelFile] = []
    for blob in container.list_blobs(name_starts_with=folder):
        if since is not None and blob.last_modified > since:
            raise PromotionRefused(
                f"file {blob.name} in container {container.container_name} was written at "
                f"{blob.last_modified:%Y-%m-%d %H:%M:%S} UTC, after {name} was registered "
                f"({since:%Y-%m-%d %H:%M:%S} UTC): its bits may not be those that were judged"
            )
        md5 = blob.content_settings.content_md5
        path = blob.name.removeprefix(folder)
        found.append(
            ModelFile(
                path=path, size=blob.size, md5=bytes(md5).hex() if md5 else None, etag=blob.etag
            )
        )
    if not found:
        raise PromotionRefused(f"{name} has no files in {container.container_name}/{folder}")
    return found


def hash_of(parts: Iterable[str]) -> str:
    """A hash of lines."""
    return hashlib.sha256("".join(f"{each}\n" for each in parts).encode()).hexdigest()


def copy_file(source: BlobClient, target: BlobClient, file: ModelFile) -> str:
    """Copy a file unless the copy is there, read the copy back, and return its SHA-256 in hex.

    Raises:
        PromotionRefused: the source has changed since it was listed, or other bits are there.
    """
    kept = _metadata(target)
    if kept is None:
        _write(source, target, file)
        kept = _metadata(target) or {}
    read = hashlib.sha256()
    for chunk in target.download_blob().chunks():
        read.update(chunk)
    if kept.get(SOURCE_ETAG) != file.etag or kept.get(SHA256) != read.hexdigest():
        raise PromotionRefused(
            f"{target.url} is there already with other content than {file.path} of the version: "
            "delete it if nobody needs it, and promote again"
        )
    return read.hexdigest()


def _write(source: BlobClient, target: BlobClient, file: ModelFile) -> None:
    from azure.storage.blob import BlobBlock, ContentSettings  # noqa: PLC0415 - see handlers.platform.clients

    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    staged, blocks, offset = _staged(target), list[str](), 0
    content_version = hashlib.sha256(file.etag.encode()).hexdigest()[:16]
    try:
        download = source.download_blob(
            etag=f'"{file.etag}"', match_condition=MatchConditions.IfNotModified
        )
        for chunk in download.chunks():
            sha256.update(chunk)
            md5.update(chunk)
            # Ids of one length, in base64: as the service returns them in its list of blocks.
            block = base64.b64encode(f"{content_version}-{offset:015d}".encode()).decode()
            if staged.get(block) != len(chunk):
                target.stage_block(block, chunk, validate_content=True)
            blocks.append(block)
            offset += len(chunk)
    except (ResourceModifiedError, ResourceNotFoundError) as error:
        raise _changed(file, "it was overwritten or deleted") from error
    if offset != file.size or file.md5 not in (None, md5.hexdigest()):
        raise _changed(file, f"{offset} bytes with MD5 {md5.hexdigest()} were read")
    try:
        target.commit_block_list(
            [BlobBlock(each) for each in blocks],
            content_settings=ContentSettings(content_md5=bytearray(md5.digest())),
            metadata={SHA256: sha256.hexdigest(), SOURCE_ETAG: file.etag},
            match_condition=MatchConditions.IfMissing,
        )
    except ResourceExistsError:
        return  # another execution was faster; its copy is read back


def _changed(file: ModelFile, what: str) -> PromotionRefused:
    return PromotionRefused(
        f"file {file.path} has changed since it was listed with {file.size} bytes, MD5 {file.md5} "
        f"and ETag {file.etag}: {what}"
    )


def _staged(target: BlobClient) -> dict[str, int]:
    """Block id → size, of what an execution before has left."""
    try:
        _, staged = target.get_block_list("uncommitted")
    except ResourceNotFoundError:
        return {}
    return {str(each.id): int(each.size or 0) for each in staged}


def _metadata(target: BlobClient) -> dict[str, str] | None:
    try:
        return dict(target.get_blob_properties().metadata or {})
    except ResourceNotFoundError:
        return None
