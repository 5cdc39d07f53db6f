"""Pages of the paths below a directory, from pages of the blobs below it.

A directory may be a blob of its own, or only a part of the names of blobs. Azurite lists blobs in
the order of their names, so that a directory of the second form comes with the first blob below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from azure.storage.blob import BlobProperties
    from azure.storage.blob.aio import BlobPrefix, ContainerClient

DEFAULT_PAGE: Final = 5000
"""https://learn.microsoft.com/rest/api/storageservices/datalakestoragegen2/path/list"""
IS_FOLDER: Final = "hdi_isfolder"


@dataclass(frozen=True)
class Page:
    """Paths, as the service describes them.

    Attributes:
        end: where the next page begins; empty after the last page.
    """

    paths: list[dict[str, str]]
    end: str


async def page_of(
    container: ContainerClient, directory: str, *, is_recursive: bool, size: int, after: str
) -> Page:
    """A page of the paths below a directory.

    Args:
        container: of the file system.
        directory: its name; empty for the root.
        is_recursive: whether paths in directories below it are listed, too.
        size: paths of a page at most.
        after: the end of the page before; empty for the first page.
    """
    top = f"{directory}/" if directory else ""
    options: Any = {
        "name_starts_with": top or None,
        "include": ["metadata"],
        "results_per_page": size,
    }
    listed = container.list_blobs if is_recursive else container.walk_blobs
    pages: Any = listed(**options).by_page(after or None)
    blobs = sorted([each async for each in await anext(pages)], key=_in_order_of_names)
    paths: dict[str, dict[str, str]] = {}  # by where a page ends that ends with the path
    previous = after
    for blob in blobs:
        for name in _directories(blob.name, top):
            begins = not previous.startswith(f"{name}/") and name not in paths
            if begins and not await _is_on_page_before(container, name, after):
                paths[f"{name}/"] = {"name": name, "isDirectory": "true"}
        if not blob.name.endswith("/"):
            paths[blob.name] = _described(blob)
        previous = blob.name
    if len(paths) <= size:
        return Page(list(paths.values()), pages.continuation_token or "")
    return Page(list(paths.values())[:size], list(paths)[size - 1])


async def _is_on_page_before(container: ContainerClient, name: str, after: str) -> bool:
    """Whether a directory that is not on this page has a blob of its own."""
    from azure.core.exceptions import ResourceNotFoundError  # noqa: PLC0415 - see `hierarchy`

    # Names between a name and its continuation by "/" all begin with it.
    if not after.startswith(name):
        return False
    try:
        await container.get_blob_client(name).get_blob_properties()
    except ResourceNotFoundError:
        return False
    return True


def is_directory(blob: BlobProperties) -> bool:
    """Whether a blob is a directory of its own."""
    return (blob.metadata or {}).get(IS_FOLDER) == "true"


def _in_order_of_names(blob: BlobProperties | BlobPrefix) -> bytes:
    """Azurite compares UTF-16; it lists what is below a directory as one, and before the blobs."""
    return blob.name.encode("utf-16-be")


def _directories(name: str, top: str) -> list[str]:
    """The directories above a blob, below `top`, from the top."""
    parts = name.removeprefix(top).split("/")
    return [top + "/".join(parts[:depth]) for depth in range(1, len(parts))]


def _described(blob: BlobProperties) -> dict[str, str]:
    described = {
        "name": blob.name,
        "etag": blob.etag,
        "lastModified": format_datetime(blob.last_modified, usegmt=True),
        "contentLength": str(blob.size),
    }
    return described | ({"isDirectory": "true"} if is_directory(blob) else {})
