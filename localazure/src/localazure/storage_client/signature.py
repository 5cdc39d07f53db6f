"""SharedKey signatures of requests to the Queue and Table services. Pure: no I/O.

Source: https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from yarl import URL

# Of a signature for blobs and queues, in this order. Date is empty: x-ms-date stands for it.
_QUEUE_HEADERS: Final = (
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
)


def sign_queue_request(
    method: str, url: URL, headers: Mapping[str, str], *, account: str, key: str
) -> str:
    """The Authorization header of a request to the Queue service.

    Args:
        method: in upper case.
        url: as it will be sent.
        headers: as they will be sent, names in lower case; `content-length` only above zero.
        account: name of the storage account.
        key: its key, base64.

    Raises:
        ValueError: the key is not base64.
    """
    ours = sorted((name, value) for name, value in headers.items() if name.startswith("x-ms-"))
    query = sorted((name.lower(), value) for name, value in url.query.items())
    text = "\n".join(
        (
            method,
            *(headers.get(name, "") for name in _QUEUE_HEADERS),
            *(f"{name}:{value}" for name, value in ours),
            f"/{account}{url.raw_path}",
            *(f"{name}:{value}" for name, value in query),
        )
    )
    return _authorization(text, account, key)


def sign_table_request(
    method: str, url: URL, headers: Mapping[str, str], *, account: str, key: str
) -> str:
    """The Authorization header of a request to the Table service; see `sign_queue_request`."""
    component = f"?comp={url.query['comp']}" if "comp" in url.query else ""
    text = "\n".join(
        (
            method,
            headers.get("content-md5", ""),
            headers.get("content-type", ""),
            headers["x-ms-date"],
            f"/{account}{url.raw_path}{component}",
        )
    )
    return _authorization(text, account, key)


def _authorization(text: str, account: str, key: str) -> str:
    digest = hmac.digest(base64.b64decode(key, validate=True), text.encode(), hashlib.sha256)
    return f"SharedKey {account}:{base64.b64encode(digest).decode()}"
