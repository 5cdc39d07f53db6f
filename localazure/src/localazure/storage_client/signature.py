"""SharedKey signatures of requests to the Table service. Pure: no I/O.

Source: https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping

from yarl import URL


def sign_table_request(
    method: str, url: URL, headers: Mapping[str, str], *, account: str, key: str
) -> str:
    """The Authorization header of a request.

    Args:
        method: in upper case.
        url: as it will be sent.
        headers: as they will be sent, names in lower case.
        account: name of the storage account.
        key: its key, base64.

    Raises:
        ValueError: the key is not base64.
    """
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
    digest = hmac.digest(base64.b64decode(key, validate=True), text.encode(), hashlib.sha256)
    return f"SharedKey {account}:{base64.b64encode(digest).decode()}"
