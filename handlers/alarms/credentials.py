"""Credentials that expire, and when those in app settings do, as far as they say so themselves.

A shared access signature has its expiry in the open (`se=`); keys and secrets have none, and a
managed identity needs no care.
https://learn.microsoft.com/rest/api/storageservices/create-account-sas
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

NOTICE = timedelta(days=14)
"""How long before its end people want to know of a credential in an app setting."""
_EXPIRY = re.compile(r"[?&= ]se=([^&;]+)")
_SIGNATURE = re.compile(r"[?&= ]sig=")


@dataclass(frozen=True, kw_only=True)
class Credential:
    """Something with an end that people have to renew."""

    about: str
    """Short and unique."""
    expires_at: datetime
    name: str
    """As a sentence calls it."""
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
    """When the shared access signature in an app setting expires; None where there is none."""
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
