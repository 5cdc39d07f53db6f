"""Credentials that expire, such as shared access signatures in app settings.

A shared access signature contains its expiry in plain text (`se=`). Keys and secrets have no
expiry, and a managed identity needs no renewal.
https://learn.microsoft.com/rest/api/storageservices/create-account-sas
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

NOTICE = timedelta(days=14)
"""How long before its expiry the alarm for a credential in an app setting begins."""
_EXPIRY = re.compile(r"[?&= ]se=([^&;]+)")
_SIGNATURE = re.compile(r"[?&= ]sig=")


@dataclass(frozen=True, kw_only=True)
class Credential:
    """A credential that expires, and that a person has to renew."""

    about: str
    """A short and unique identifier."""
    expires_at: datetime
    name: str
    """The name for sentences."""
    remedy: str


def expiring_settings(settings: Mapping[str, str], *, now: datetime) -> Sequence[Credential]:
    """The app settings whose credential expires within `NOTICE`, or has expired."""
    return [
        Credential(
            about=setting,
            expires_at=expires_at,
            name=f"the credential in app setting {setting}",
            remedy="put a new one there, or use the managed identity",
        )
        for setting, value in sorted(settings.items())
        if (expires_at := expiry_of(value)) is not None and expires_at - now <= NOTICE
    ]


def expiry_of(value: str) -> datetime | None:
    """When the shared access signature in an app setting expires; None if it has none."""
    match = _EXPIRY.search(value)
    if match is None or _SIGNATURE.search(value) is None:
        return None
    text = unquote(match[1])
    try:
        # Service Bus and Event Grid use Unix time; storage uses ISO 8601.
        moment = (
            datetime.fromtimestamp(int(text), UTC)
            if text.isdecimal()
            else datetime.fromisoformat(text)
        )
    except (ValueError, OverflowError, OSError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
