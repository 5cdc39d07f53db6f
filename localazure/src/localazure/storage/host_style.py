"""Translates requests without the account in the path to those of emulators. Pure: no I/O.

On Azure the host names the account (`ACCOUNT.blob.core.windows.net/CONTAINER/BLOB`), and some
clients support no other form. Locally such a name may not resolve; then the `Authorization` header
names the account. The rest of the proxy supports one form only, `/ACCOUNT/CONTAINER/BLOB`. The
path is part of the signature, so the signature is verified here and computed again.

Source: "Canonicalized resource string" of
https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
"""

from __future__ import annotations

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, NamedTuple

from multidict import CIMultiDict

from localazure.runtime.identity import is_one_of
from localazure.storage.refusal import NOT_AUTHENTIC, Refusal
from localazure.storage_client.signature import sign_request

_HOST: Final = re.compile(r"^(?P<account>[a-z0-9]{3,24})\.blob\.")
_KEY: Final = re.compile(r"^SharedKey (?P<account>[a-z0-9]{3,24}):")
_NO_ACCOUNT: Final = Refusal(
    HTTPStatus.BAD_REQUEST,
    "InvalidUri",
    "The request names no account: send it to http://ACCOUNT.blob.localhost, sign it with the "
    "account's key, or put the account first in the path of the other port.",
)


class PathStyle(NamedTuple):
    """A request with the account in its path, as emulators need it."""

    target: str
    """Path and query, with the account first."""
    headers: CIMultiDict[str]


def names_account(host: str) -> bool:
    """Whether the header `Host` names an account."""
    return _HOST.match(host) is not None


def to_path_style(
    method: str, target: str, headers: CIMultiDict[str], key_of: Callable[[str], str]
) -> PathStyle | Refusal:
    """Translate a request to the Blob service, or refuse it.

    Args:
        method: in upper case.
        target: path and query as sent, the container first.
        headers: the headers as sent; they are changed in place.
        key_of: returns the key of an account, base64.
    """
    authorization = headers.get("Authorization", "")
    signed = _KEY.match(authorization)
    named = _HOST.match(headers.get("Host", "")) or signed
    if named is None:
        return _NO_ACCOUNT
    account = named["account"]
    # Azurite would take the account from the host name, too.
    headers["Host"] = "localhost"
    translated = f"/{account}{target}"
    if signed is not None:

        def signature(of: str) -> str:
            lowered = {name.lower(): value for name, value in headers.items()}
            key = key_of(account)
            return sign_request(method, f"http://localhost{of}", lowered, account=account, key=key)

        if not is_one_of(authorization, [signature(target)]):
            return NOT_AUTHENTIC
        headers["Authorization"] = signature(translated)
    return PathStyle(translated, headers)
