"""When the credentials in app settings expire, as far as they say so themselves.

A shared access signature has its expiry in the open (`se=`); keys and secrets have none, and a
managed identity needs no care.
https://learn.microsoft.com/rest/api/storageservices/create-account-sas
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import unquote

_EXPIRY = re.compile(r"[?&= ]se=([^&;]+)")
_SIGNATURE = re.compile(r"[?&= ]sig=")


def find_expiries(settings: Mapping[str, str]) -> dict[str, datetime]:
    """App setting → when the shared access signature in it expires. Values are never returned."""
    found: dict[str, datetime] = {}
    for name, value in settings.items():
        expires_at = _expiry(value)
        if expires_at is not None:
            found[name] = expires_at
    return found


def _expiry(value: str) -> datetime | None:
    match = _EXPIRY.search(value)
    if match is None or _SIGNATURE.search(value) is None:
        return None
    text = unquote(match[1])
    try:
        # Service Bus and Event Grid count seconds; storage writes ISO 8601.
        moment = (
            datetime.fromtimestamp(int(text), UTC)
            if text.isdecimal()
            else datetime.fromisoformat(text)
        )
    except (ValueError, OverflowError, OSError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
