"""Service shared access signatures of blobs and containers. Pure: no I/O.

Source: https://learn.microsoft.com/rest/api/storageservices/create-service-sas
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

API_VERSION: Final = "2021-12-02"


def service_sas(
    *,
    account: str,
    key: str,
    container: str,
    blob: str = "",
    permissions: str,
    start: datetime | None = None,
    expiry: datetime,
) -> str:
    """Return a SAS token, without its question mark.

    Args:
        account: name of the storage account.
        key: the account's key, base64.
        container: the container of the SAS.
        blob: the blob of the SAS; empty for the whole container.
        permissions: letters in the service's order, `racwdxltmeop`.
        start: the start of the validity, an aware time; None means at once.
        expiry: the end of the validity, an aware time.
    """
    path = f"/blob/{account}/{container}" + (f"/{blob}" if blob else "")
    begins = _moment(start) if start else ""
    ends, resource = _moment(expiry), "b" if blob else "c"
    # The empty fields are not used here: a policy's id, IP addresses, protocols; at the end a
    # snapshot, an encryption scope and five response headers.
    signed = (permissions, begins, ends, path, "", "", "", API_VERSION, resource, *[""] * 7)
    digest = hmac.digest(base64.b64decode(key), "\n".join(signed).encode(), hashlib.sha256)
    fields = {
        "st": begins,
        "se": ends,
        "sp": permissions,
        "sv": API_VERSION,
        "sr": resource,
        "sig": base64.b64encode(digest).decode(),
    }
    return urlencode({name: value for name, value in fields.items() if value})


def _moment(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
