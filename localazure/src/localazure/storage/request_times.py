"""Checks that a request comes at a time that its signature allows.

Azurite does not check the date of a request, and always uses the clock of the machine.
https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key#specifying-the-date-header
https://learn.microsoft.com/rest/api/storageservices/create-service-sas#specify-the-signature-validity-interval
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs

from localazure.storage.refusal import Refusal

OLDEST: Final = timedelta(minutes=15)
TOO_OLD: Final = Refusal(
    HTTPStatus.FORBIDDEN,
    "AuthenticationFailed",
    "Server failed to authenticate the request. Request date header too old: its clock, or that of "
    "the service, is wrong.",
)
NOT_NOW: Final = Refusal(
    HTTPStatus.FORBIDDEN,
    "AuthenticationFailed",
    "Server failed to authenticate the request. Signature not valid in the specified time frame.",
)


def refusal_of(target: str, headers: Mapping[str, str], now: datetime) -> Refusal | None:
    """Return why the times of a request are not valid. Azurite refuses malformed times itself.

    Args:
        target: path and query as sent.
        headers: a mapping with case-insensitive keys.
        now: an aware time.
    """
    if headers.get("Authorization", "").startswith("SharedKey"):
        date = headers.get("x-ms-date") or headers.get("Date") or ""
        sent = _time(parsedate_to_datetime, date)
        return TOO_OLD if sent is not None and now - sent > OLDEST else None
    _, _, query = target.partition("?")
    if "sig=" not in query:
        return None
    fields = parse_qs(query)
    start, end = (_time(datetime.fromisoformat, fields.get(name, [""])[0]) for name in ("st", "se"))
    is_early = start is not None and now < start
    return NOT_NOW if is_early or (end is not None and now >= end) else None


@functools.lru_cache(maxsize=16)  # requests of the same second repeat them
def _time(parse: Callable[[str], datetime], text: str) -> datetime | None:
    try:
        moment = parse(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
