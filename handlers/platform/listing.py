"""List Blobs, one page per call.

Requests use the SDK's HTTP pipeline (credentials, retries, logging). `blob_pages` parses the
responses, many times faster than the SDK.
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

from handlers.platform.blob_pages import ARROW_STREAM, BlobPage, parse_page

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
    """Request one page of at most 5,000 blobs.

    A service that does not support `start_from`, the first name to list, lists from the beginning.

    Raises:
        azure.core.exceptions.HttpResponseError: the service refuses.
        TransientError: the response is malformed.
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
        # Encoded here, since azure-core does not encode parameters.
        params={key: quote(value, safe="") for key, value in asked.items() if value},
        headers={
            "x-ms-version": container.api_version,
            "Accept": f"{ARROW_STREAM},application/xml",
        },
    )
    # Without `stream`, the pipeline first parses the response into an element tree. The client has
    # no public access to its pipeline; a second pipeline would duplicate credentials and retries.
    answer = container._pipeline.run(request, stream=True)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    response = answer.http_response
    if response.status_code != _OK:
        response.read()
        map_error(response.status_code, response, _ERRORS)
        raise HttpResponseError(response=response)
    try:
        return parse_page(response.iter_bytes(), response.headers.get("Content-Type", ""))
    finally:
        response.close()  # leave the rest of a malformed response unread
