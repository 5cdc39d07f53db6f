"""Authorizes requests to storage accounts and determines the headers to forward.

Azurite checks keys and shared access signatures. A bearer token is checked here, with the roles of
its principal; the request is then signed with the account's key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from http import HTTPStatus
from typing import Final

from multidict import CIMultiDict, CIMultiDictProxy

from localazure.runtime.identity import STORAGE_AUDIENCE, InvalidTokenError, TokenIssuer, is_one_of
from localazure.runtime.roles import RoleAssignments
from localazure.storage import account_kinds, blob_names, request_times
from localazure.storage.actions import Needed, needed_for
from localazure.storage.configuration import Account
from localazure.storage.host_style import PathStyle, to_path_style
from localazure.storage.paths import account_of, split_target
from localazure.storage.refusal import NOT_AUTHENTIC, TOO_LARGE, Refusal, not_covered
from localazure.storage_client.endpoint import Service
from localazure.storage_client.signature import sign_request

# https://learn.microsoft.com/rest/api/storageservices/authorize-with-azure-active-directory#bearer-challenge
_CHALLENGE: Final = (
    "Bearer authorization_uri=https://login.microsoftonline.com/common/oauth2/authorize "
    f"resource_id={STORAGE_AUDIENCE}"
)
_NO_TLS: Final = Refusal(
    HTTPStatus.BAD_REQUEST,
    "AccountRequiresHttps",
    "The account being accessed does not support http: send tokens to the TLS endpoint.",
)
_NOT_PERMITTED: Final = Refusal(
    HTTPStatus.FORBIDDEN,
    "AuthorizationPermissionMismatch",
    "This request is not authorized to perform this operation using this permission.",
)
_FLAT: Final = Refusal(
    HTTPStatus.BAD_REQUEST,
    "HierarchicalNamespaceNotEnabled",
    "The account has no hierarchical namespace: its storage.json lacks isHnsEnabled.",
)
# https://learn.microsoft.com/rest/api/storageservices/blob-batch#remarks
_MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
_NO_BATCH: Final = not_covered("batches by identity: the requests in them carry tokens")


class Gate:
    """The access checks of all accounts, shared by the proxies of all services.

    Args:
        accounts: the accounts by name.
        key_of: returns the key of an account, base64.
        tokens: verifies the tokens of identities.
        assignments: the roles of identities.
        now: returns an aware time, which an injected fault may shift.
    """

    def __init__(
        self,
        accounts: Mapping[str, Account],
        key_of: Callable[[str], str],
        tokens: TokenIssuer,
        assignments: RoleAssignments,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._accounts = accounts
        self._key_of = key_of
        self._tokens = tokens
        self._assignments = assignments
        self._now = now

    def admit(
        self,
        service: Service,
        method: str,
        target: str,
        headers: CIMultiDict[str],
        *,
        is_secure: bool,
    ) -> Refusal | CIMultiDict[str]:
        """Return the headers to forward a request with, or the refusal.

        Args:
            service: the service of the request.
            method: in upper case.
            target: path and query as sent.
            headers: the headers to forward.
            is_secure: whether the request came over TLS.
        """
        refusal = blob_names.refusal_of(service, method, target)
        account = self._accounts.get(account_of(target))
        if refusal is None and account is not None:
            refusal = account_kinds.refusal_of(account.kind, service, target, headers)
        is_batch = method == "POST" and split_target(target)[1].get("comp") == "batch"
        if is_batch and int(headers.get("Content-Length", 0)) > _MAX_BATCH_BYTES:
            refusal = refusal or TOO_LARGE
        if refusal is not None:
            return refusal
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            # Azurite checks keys and signatures, and refuses unknown accounts.
            return request_times.refusal_of(target, headers, self._now()) or headers
        if not is_secure:
            return _NO_TLS
        refusal = self._refusal_of_identity(token, needed_for(service, method, target, headers))
        if refusal is not None:
            return refusal
        if is_batch:
            return _NO_BATCH
        return self._signed(service, method, target, headers)

    def _refusal_of_identity(self, token: str, needed: Sequence[Needed]) -> Refusal | None:
        try:
            principal = self._tokens.check(token, now=self._now().timestamp())
        except InvalidTokenError as error:
            return Refusal(
                HTTPStatus.UNAUTHORIZED,
                "InvalidAuthenticationInfo",
                f"Server failed to authenticate the request: {error}.",
                {"WWW-Authenticate": _CHALLENGE},
            )
        is_permitted = all(self._assignments.permit(principal, *each) for each in needed)
        return None if is_permitted else _NOT_PERMITTED

    def to_path_style(
        self, method: str, target: str, headers: CIMultiDict[str]
    ) -> PathStyle | Refusal:
        """Translate a request whose path begins with the container; see `host_style`."""
        return to_path_style(method, target, headers, self._key_of)

    def refusal_of_path_request(
        self, method: str, target: str, headers: CIMultiDictProxy[str]
    ) -> Refusal | None:
        """Return the refusal of a request about a file or a directory, if any.

        Azurite does not get such a request, so its key is checked here. `admit` checked identities.
        """
        account = self._accounts.get(account_of(target))
        if account is None:
            return NOT_AUTHENTIC
        if not account.is_hns_enabled:
            return _FLAT
        authorization = headers.get("Authorization", "")
        if authorization.lower().startswith("bearer "):
            return None
        expected = self._signature(Service.BLOB, method, target, headers)
        return None if is_one_of(authorization, [expected]) else NOT_AUTHENTIC

    def _signed(
        self, service: Service, method: str, target: str, headers: CIMultiDict[str]
    ) -> CIMultiDict[str]:
        signed = headers.copy()
        signed["x-ms-date"] = format_datetime(self._now(), usegmt=True)
        signed["Authorization"] = self._signature(service, method, target, signed)
        return signed

    def _signature(
        self, service: Service, method: str, target: str, headers: Mapping[str, str]
    ) -> str:
        account = account_of(target)
        return sign_request(
            method,
            f"http://localhost{target}",
            {name.lower(): value for name, value in headers.items()},
            account=account,
            key=self._key_of(account),
            is_table=service is Service.TABLE,
        )
