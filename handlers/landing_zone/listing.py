"""List Blobs, a page at a time, and what of a page is a pipeline's data.

The pages are asked for through the SDK's own pipeline (credentials, retries, logging), and parsed
by `blob_pages`: the SDK's own parsing costs many times as much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
    map_error,
)
from azure.core.rest import HttpRequest

from handlers.landing_zone.blob_pages import ARROW_STREAM, BlobPage, ListedBlob, parse_page
from handlers.landing_zone.directory_stubs import is_stub_name
from handlers.triggers.blob_events import is_safe_path
from orchestrations.pipeline import Source

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

_OK = 200
_ERRORS = {401: ClientAuthenticationError, 404: ResourceNotFoundError}


def list_page(
    container: ContainerClient,
    prefix: str,
    *,
    marker: str | None = None,
    start_from: str | None = None,
    delimiter: str | None = None,
) -> BlobPage:
    """Ask for one page, 5,000 blobs at most.

    A service that does not know `start_from`, the first name that may be listed, lists from the
    beginning.

    Raises:
        azure.core.exceptions.HttpResponseError: the service refuses.
        TransientError: the answer is malformed.
    """
    asked = {
        "restype": "container",
        "comp": "list",
        "include": "metadata",
        "prefix": prefix,
        "marker": marker,
        "startFrom": start_from,
        "delimiter": delimiter,
    }
    request = HttpRequest(
        "GET",
        container.url,
        # Encoded: azure-core takes parameters as they are.
        params={key: quote(value, safe="") for key, value in asked.items() if value},
        headers={
            "x-ms-version": container.api_version,
            "Accept": f"{ARROW_STREAM},application/xml",
        },
    )
    # `stream`: else the pipeline parses the answer into a tree of elements first. There is no
    # public way to the client's credentials and retries; a second pipeline would copy them.
    answer = container._pipeline.run(request, stream=True)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    response = answer.http_response
    if response.status_code != _OK:
        response.read()
        map_error(response.status_code, response, _ERRORS)
        raise HttpResponseError(response=response)
    try:
        return parse_page(response.iter_bytes(), response.headers.get("Content-Type", ""))
    finally:
        response.close()  # of a malformed answer the rest is not read


def is_data(blob: ListedBlob, source: Source, path: str) -> bool:
    """Whether a listed blob is data of a pipeline; `path` is its name below the source's prefix."""
    return (
        not blob.is_directory
        and not is_stub_name(path, blob.size)
        and source.takes(path)
        and is_safe_path(blob.name)
    )
