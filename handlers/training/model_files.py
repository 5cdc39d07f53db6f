"""The files of a model version: where they lie, and copies of them with the same bits.

A copy streams through this process in blocks; each block goes to the other account with its MD5,
which the service checks. Blocks that an execution before a crash has left are adopted. At last the
copy is read back.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError

from handlers.platform import tags
from handlers.platform.clients import Clients
from handlers.platform.tags import tags_of
from handlers.training.champions import registered_at
from orchestrations.contracts.base import Contract
from orchestrations.contracts.promotions import CopyProgress
from orchestrations.errors import PromotionRefused
from orchestrations.names import results_folder, trial_folder

if TYPE_CHECKING:
    from azure.ai.ml.entities import Model as AzureMLModel
    from azure.storage.blob import BlobClient, BlobServiceClient, ContainerClient

_DATASTORE = re.compile(r"datastores/(?P<name>[^/]+)/paths/(?P<path>.+)$")
_OUTPUT = re.compile(r"jobs/(?P<job>[^/]+)/outputs/results/paths/(?P<path>.+)$")
PART_BYTES = 1024 * 1024 * 1024
"""One execution, which has 110 s, reads at most this much. The SHA-256 of a larger file is that of
its last part; the hash of each part begins with the hex digest of the previous part."""
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
        tagged = tags_of(model)
        job, is_run = match["job"], match["job"] == tagged.get(tags.RUN)
        # Of a sweep, the trial's output is at Azure ML's default path.
        folder = results_folder(tagged[tags.PIPELINE], job) if is_run else trial_folder(job)
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
    files: list[ModelFile] = []
    for blob in container.list_blobs(name_starts_with=folder):
        if since is not None and blob.last_modified > since:
            raise PromotionRefused(
                f"file {blob.name} in container {container.container_name} was written at "
                f"{blob.last_modified:%Y-%m-%d %H:%M:%S} UTC, after {name} was registered "
                f"({since:%Y-%m-%d %H:%M:%S} UTC): its bits may not be those that were judged"
            )
        md5 = blob.content_settings.content_md5
        path = blob.name.removeprefix(folder)
        files.append(
            ModelFile(
                path=path, size=blob.size, md5=bytes(md5).hex() if md5 else None, etag=blob.etag
            )
        )
    if not files:
        raise PromotionRefused(f"{name} has no files in {container.container_name}/{folder}")
    return files


def hash_of(parts: Iterable[str]) -> str:
    """A hash of lines."""
    return hashlib.sha256("".join(f"{each}\n" for each in parts).encode()).hexdigest()


def hash_of_model(blobs: BlobServiceClient, container: str, folder: str) -> str | None:
    """A hash of the names and ETags of the files in `model/` of a folder; None if there are none.

    A file that is written again, with whatever bits, has another ETag.
    """
    found = blobs.get_container_client(container).list_blobs(name_starts_with=f"{folder}model/")
    lines = sorted(f"{each.name} {each.etag}" for each in found)
    return hash_of(lines) if lines else None


def copy_part(
    source: BlobClient, target: BlobClient, file: ModelFile, progress: CopyProgress
) -> CopyProgress:
    """Copy the next part of a file, or read the next part of its copy back.

    An existing copy is adopted; it is read back, too.

    Raises:
        PromotionRefused: the source has changed since it was listed, or the copy has other content.
    """
    if not progress.reads_back:
        if _metadata(target) is None:
            progress = _write_part(source, target, file, progress)
            if progress.offset < file.size:
                return progress
            _commit(target, file, progress)
        return CopyProgress(files=progress.files, reads_back=True)
    progress = _advance(progress, file, _chunks(target, file, progress))
    if progress.offset < file.size:
        return progress
    kept = _metadata(target) or {}
    if (kept.get(SOURCE_ETAG), kept.get(SHA256)) != (file.etag, progress.link):
        raise PromotionRefused(
            f"{target.container_name}/{target.blob_name} is there already in the other workspace, "
            f"with other content than {file.path} of the version: delete it if nobody needs it, "
            "and promote again"
        )
    return CopyProgress(files=progress.files + 1)


def _write_part(
    source: BlobClient, target: BlobClient, file: ModelFile, progress: CopyProgress
) -> CopyProgress:
    staged, md5 = _staged(target), hashlib.md5(usedforsecurity=False)

    def stage() -> Iterator[bytes]:
        offset = progress.offset
        condition = {"etag": f'"{file.etag}"', "match_condition": MatchConditions.IfNotModified}
        for chunk in _chunks(source, file, progress, **condition):
            block = _block_id(file, offset)
            if staged.get(block) != len(chunk):
                target.stage_block(block, chunk, validate_content=True)
            md5.update(chunk)
            offset += len(chunk)
            yield chunk

    try:
        following = _advance(progress, file, stage())
    except (ResourceModifiedError, ResourceNotFoundError) as error:
        raise _changed(file, "it was overwritten or deleted") from error
    if file.size <= PART_BYTES and file.md5 not in (None, md5.hexdigest()):
        raise _changed(file, f"bytes with MD5 {md5.hexdigest()} were read")
    return following


def _commit(target: BlobClient, file: ModelFile, progress: CopyProgress) -> None:
    from azure.storage.blob import BlobBlock, ContentSettings  # noqa: PLC0415 - see handlers.platform.clients

    blocks = sorted(each for each in _staged(target) if _is_of(each, file))
    try:
        target.commit_block_list(
            [BlobBlock(each) for each in blocks],
            content_settings=ContentSettings(
                content_md5=None if file.md5 is None else bytearray.fromhex(file.md5)
            ),
            metadata={SHA256: progress.link, SOURCE_ETAG: file.etag},
            match_condition=MatchConditions.IfMissing,
        )
    except ResourceExistsError:
        return  # another execution was faster; its copy is read back


def _chunks(
    blob: BlobClient, file: ModelFile, progress: CopyProgress, **condition: Any
) -> Iterator[bytes]:
    """The bytes of the next part."""
    if progress.offset < file.size:  # an empty blob has no range
        length = min(PART_BYTES, file.size - progress.offset)
        yield from blob.download_blob(offset=progress.offset, length=length, **condition).chunks()


def _advance(progress: CopyProgress, file: ModelFile, chunks: Iterable[bytes]) -> CopyProgress:
    """The progress after a part."""
    digest, offset = hashlib.sha256(progress.link.encode()), progress.offset
    for chunk in chunks:
        digest.update(chunk)
        offset += len(chunk)
    if offset < min(progress.offset + PART_BYTES, file.size):
        raise _changed(file, f"it ends at byte {offset}")
    return progress.model_copy(update={"offset": offset, "link": digest.hexdigest()})


def _changed(file: ModelFile, what: str) -> PromotionRefused:
    return PromotionRefused(
        f"file {file.path} has changed since it was listed with {file.size} bytes, MD5 {file.md5} "
        f"and ETag {file.etag}: {what}"
    )


def _block_id(file: ModelFile, offset: int) -> str:
    """The id of a block: the same length for all, as the service wants, and sorted by offset.

    Those of another content of the file have another beginning.
    """
    return f"{hashlib.sha256(file.etag.encode()).hexdigest()[:16]}-{offset:015d}"


def _is_of(block: str, file: ModelFile) -> bool:
    return block.partition("-")[0] == _block_id(file, 0).partition("-")[0]


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
