"""Refuses names of blobs that a listing in XML cannot hold. Pure: no I/O.

Azurite takes such a blob, and then answers every listing of its container with 500. Azure refuses
control characters, and lists U+FFFE and U+FFFF percent-encoded.

Sources:
https://learn.microsoft.com/rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata
and https://learn.microsoft.com/rest/api/storageservices/list-blobs
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from localazure.storage.refusal import Refusal
from localazure.storage_client.endpoint import Service

# In a path as sent, percent-encoded: all controls but tab, line feed and carriage return.
_NOT_IN_XML: Final = re.compile(r"%(0[0-8bcef]|1[0-9a-f]|ef%bf%b[ef])", re.IGNORECASE)
_REFUSAL: Final = Refusal(
    HTTPStatus.BAD_REQUEST,
    "InvalidUri",
    "The requested URI does not represent any resource on the server: the name of a blob has a "
    "control character, U+FFFE or U+FFFF.",
)


def refusal_of(service: Service, method: str, target: str) -> Refusal | None:
    """Return why a request may not write a blob of this name; None if it may.

    Args:
        service: the service of the request.
        method: in upper case.
        target: path and query as sent.
    """
    if service is not Service.BLOB or method != "PUT":
        return None
    return _REFUSAL if _NOT_IN_XML.search(target.partition("?")[0]) else None
