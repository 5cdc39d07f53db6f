"""Operations that an account refuses because of its kind. Pure: no I/O.

Sources: https://learn.microsoft.com/azure/storage/common/storage-account-overview and
https://learn.microsoft.com/azure/storage/blobs/storage-blob-block-blob-premium. The error codes are
those of the SDKs' `BlobErrorCode`; their HTTP status is not documented.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import parse_qs

from localazure.storage.configuration import AccountKind
from localazure.storage.refusal import Refusal
from localazure.storage_client.endpoint import Service


def refusal_of(
    kind: AccountKind, service: Service, target: str, headers: Mapping[str, str]
) -> Refusal | None:
    """Return why an account of this kind refuses a request; None if it accepts it.

    Args:
        kind: the account's kind.
        service: the service of the request.
        target: path and query as sent.
        headers: a mapping with case-insensitive keys.
    """
    if kind is AccountKind.STANDARD:
        return None
    if service is not Service.BLOB:
        return Refusal(
            HTTPStatus.NOT_FOUND,
            "ResourceNotFound",
            f"A premium block blob account has no {service} service: "
            f"on Azure the host name of its {service} endpoint does not exist.",
        )
    is_tier_change = parse_qs(target.partition("?")[2]).get("comp") == ["tier"]
    if is_tier_change or "x-ms-access-tier" in headers:
        return Refusal(
            HTTPStatus.BAD_REQUEST,
            "BlobAccessTierNotSupportedForAccountType",
            "Blob access tier is not supported on this storage account type.",
        )
    if headers.get("x-ms-blob-type", "").lower() == "pageblob":
        return Refusal(
            HTTPStatus.BAD_REQUEST, "BlobTypeNotSupported", "Page blobs are not supported."
        )
    return None
