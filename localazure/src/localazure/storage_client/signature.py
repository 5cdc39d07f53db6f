"""SharedKey signatures of requests to a storage service. Pure: no I/O.

Source: https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import SplitResult, parse_qsl, urlsplit

# In the order of the signature; the date is always in `x-ms-date`.
_SIGNED_HEADERS = (
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


def sign_request(
    method: str,
    url: str,
    headers: Mapping[str, str],
    *,
    account: str,
    key: str,
    is_table: bool = False,
) -> str:
    """Return the Authorization header of a request.

    Args:
        method: in upper case.
        url: the URL to send.
        headers: the headers to send, names in lower case, with `x-ms-date`.
        account: name of the storage account.
        key: the account's key, base64.
        is_table: whether the request is for the table service, which signs less.

    Raises:
        ValueError: the key is not base64.
    """
    address = urlsplit(url)
    text_of = _table_text if is_table else _blob_or_queue_text
    text = text_of(method, address, headers, f"/{account}{address.path}")
    digest = hmac.digest(
        base64.b64decode(key, validate=True), text.encode(errors="surrogateescape"), hashlib.sha256
    )
    return f"SharedKey {account}:{base64.b64encode(digest).decode()}"


def _table_text(
    method: str, address: SplitResult, headers: Mapping[str, str], resource: str
) -> str:
    query = dict(parse_qsl(address.query, keep_blank_values=True))
    component = f"?comp={query['comp']}" if "comp" in query else ""
    return "\n".join(
        (
            method,
            headers.get("content-md5", ""),
            headers.get("content-type", ""),
            headers["x-ms-date"],
            resource + component,
        )
    )


def _blob_or_queue_text(
    method: str, address: SplitResult, headers: Mapping[str, str], resource: str
) -> str:
    signed = {**headers, "date": ""}
    if signed.get("content-length") == "0":
        signed["content-length"] = ""
    standard = [signed.get(name, "") for name in _SIGNED_HEADERS]
    own = [f"{name}:{headers[name].strip()}" for name in sorted(headers) if name[:5] == "x-ms-"]
    values: dict[str, list[str]] = {}
    for name, value in parse_qsl(address.query, keep_blank_values=True):
        values.setdefault(name.lower(), []).append(value)
    query = [f"{name}:{','.join(sorted(values[name]))}" for name in sorted(values)]
    return "\n".join((method, *standard, *own, resource, *query))
