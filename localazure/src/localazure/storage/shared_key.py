"""SharedKey authorization of the storage part's own requests to Azurite. Pure: no I/O.

Source: https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime

from localazure.runtime.environment import STORAGE_ACCOUNT, STORAGE_KEY

API_VERSION = "2021-12-02"
# Content-Encoding to Range: all empty, as these requests have no body and no condition.
_EMPTY_STANDARD_HEADERS = "\n" * 11


def signed_headers(
    method: str, path: str, query: Mapping[str, str] | None = None, *, now: datetime | None = None
) -> dict[str, str]:
    """Headers that authorize a request without a body.

    Args:
        method: in upper case.
        path: percent-encoded as it will be sent, the account first.
        query: parameters, decoded, their names in lower case.
        now: time of the signature, UTC.
    """
    headers = {
        "x-ms-date": format_datetime(now or datetime.now(UTC), usegmt=True),
        "x-ms-version": API_VERSION,
    }
    canonical_headers = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    canonical_query = "".join(f"\n{name}:{value}" for name, value in sorted((query or {}).items()))
    text = (
        f"{method}\n{_EMPTY_STANDARD_HEADERS}{canonical_headers}"
        f"/{STORAGE_ACCOUNT}{path}{canonical_query}"
    )
    key = base64.b64decode(STORAGE_KEY)
    signature = base64.b64encode(hmac.digest(key, text.encode(), hashlib.sha256)).decode()
    return {**headers, "Authorization": f"SharedKey {STORAGE_ACCOUNT}:{signature}"}
