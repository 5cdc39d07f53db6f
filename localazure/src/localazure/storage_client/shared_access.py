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
    """A SAS token, without its question mark.

    Args:
        account: name of the storage account.
        key: its key, base64.
        container: that the SAS is for.
        blob: the one that it is for; empty for all of the container.
        permissions: letters, in the order of the service: `racwdxltmeop`.
        start: when it begins to be valid, an aware time; None is at once.
        expiry: when it ends, an aware time.
    """
    path = f"/blob/{account}/{container}" + (f"/{blob}" if blob else "")
    begins = _moment(start) if start else ""
    ends, resource = _moment(expiry), "b" if blob else "c"
    # Between the fields that are used here are those that are not: a policy's id, IP addresses,
    # protocols; a snapshot, an encryption scope and five response headers at the end.
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
