"""Blob Batch: many deletes in one multipart request. Pure: no I/O.

Source: https://learn.microsoft.com/rest/api/storageservices/blob-batch. A part of the request is
an HTTP request of its own; a part of the response is its answer and carries its Content-ID.
"""

from __future__ import annotations

from email.parser import HeaderParser
from urllib.parse import parse_qs

from multidict import CIMultiDict

from localazure.storage.operations import Api, Operation

# The service accepts at most 256 requests and 4 MiB (blob-batch, "Remarks").
MAX_BATCH_BYTES = 4 * 1024 * 1024


def is_batch(method: str, target: str) -> bool:
    """Whether a request is a Blob Batch of an account or a container."""
    return method == "POST" and parse_qs(target.partition("?")[2]).get("comp") == ["batch"]


def deletions(content_type: str, body: bytes) -> dict[str, Operation]:
    """The deletes of a batch, by Content-ID."""
    found: dict[str, Operation] = {}
    for content_id, request in _parts(content_type, body):
        line, _, rest = request.lstrip().partition("\n")
        words = line.split()
        if len(words) < 2:  # noqa: PLR2004 - method and target
            continue
        headers = CIMultiDict(HeaderParser().parsestr(rest, headersonly=True).items())
        operation = Operation.classify(words[0].upper(), words[1], headers)
        if operation is not None and operation.api is Api.DELETE_BLOB:
            found[content_id] = operation
    return found


def statuses(content_type: str, body: bytes) -> dict[str, int]:
    """HTTP status of each part of a batch's answer, by Content-ID."""
    found: dict[str, int] = {}
    for content_id, response in _parts(content_type, body):
        words = response.lstrip().split(maxsplit=2)
        if len(words) > 1 and words[1].isdigit():
            found[content_id] = int(words[1])
    return found


def _parts(content_type: str, body: bytes) -> list[tuple[str, str]]:
    """Content-ID and payload of each part of a multipart/mixed body (RFC 2046, section 5.1.1).

    The module `email` cannot parse it: azure-storage-blob's asynchronous client sends a boundary
    with `=` but without the quotes that RFC 2045 requires, and services accept it.
    """
    boundary = content_type.partition("boundary=")[2].partition(";")[0].strip().strip('"')
    if not boundary:
        return []
    text = ("\r\n" + body.decode("utf-8", "replace")).partition(f"\r\n--{boundary}--")[0]
    found: list[tuple[str, str]] = []
    for number, part in enumerate(text.split(f"\r\n--{boundary}\r\n")[1:]):
        head, _, payload = part.partition("\r\n\r\n")
        content_id = HeaderParser().parsestr(head, headersonly=True).get("Content-ID")
        found.append((content_id or str(number), payload))
    return found
