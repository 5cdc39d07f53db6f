"""Decides whether an intent without a response took place. Pure: no I/O.

The present properties of the blob decide. A superfluous event is possible if another request wrote
the blob in the same second. An event is missing only for a version that was overwritten or deleted
again; the later operation has its own event.
"""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from localazure.storage.operations import Api, Properties
from localazure.storage.outbox import Intent

# Last-Modified has a resolution of one second.
LAST_MODIFIED_RESOLUTION_SECONDS = 1.0


def took_place(intent: Intent, now: Mapping[str, str] | None) -> bool:
    """Whether the operation took place, according to the blob's present properties.

    Args:
        intent: the operation and the time before it was forwarded.
        now: headers of Get Blob Properties; None if the blob does not exist.
    """
    if intent.operation.api.is_deletion:
        return intent.before is not None and now is None
    if now is None:
        return False
    if intent.operation.api.is_rename:  # keeps Last-Modified and the ETag
        return intent.before is not None and Properties.from_headers(now).etag == intent.before.etag
    if intent.operation.api is Api.SET_BLOB_TIER:  # keeps Last-Modified
        return intent.before is not None and Properties.from_headers(now).tier != intent.before.tier
    modified_seconds = parsedate_to_datetime(now["Last-Modified"]).timestamp()
    return modified_seconds > intent.made_seconds - LAST_MODIFIED_RESOLUTION_SECONDS


def properties_for(intent: Intent, now: Mapping[str, str] | None) -> Properties | None:
    """The blob's fields in the event of an intent whose write took place."""
    return intent.before if now is None else Properties.from_headers(now)
