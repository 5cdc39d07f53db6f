"""Authorization of a connection: claims-based security over the node `$cbs`, and SASL PLAIN.

Tokens are shared access signatures, https://learn.microsoft.com/azure/service-bus-messaging/service-bus-sas,
or JSON web tokens. Where roles are enforced, the latter are those of the local identity endpoint,
and the roles of their principal decide. Elsewhere any token in form passes until its expiry, such
as one of Entra ID, whose signature cannot be verified here.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote

import jwt
from jwt.types import Options

from localazure.runtime.identity import InvalidTokenError, TokenIssuer
from localazure.runtime.roles import RoleAssignments
from localazure.servicebus.addresses import MANAGEMENT, entity_path

SAS_PREFIX = "SharedAccessSignature "


class TokenError(Exception):
    """A token is not valid. The message gives the reason and never contains the token."""


@dataclass(frozen=True, slots=True)
class SharedKey:
    """The one access key of the namespace."""

    name: str
    value: str

    def signs(self, text: str, signature: str) -> bool:
        """Whether the signature is that of the text with this key."""
        digest = hmac.new(self.value.encode(), text.encode(), hashlib.sha256).digest()
        return hmac.compare_digest(base64.b64encode(digest), signature.encode())


class Right(StrEnum):
    """A link's use of an entity: the data actions of roles."""

    SEND = "messages/send"
    RECEIVE = "messages/receive"


@dataclass(frozen=True, slots=True)
class Identities:
    """Identities that may authenticate by a token, and their permissions."""

    tokens: TokenIssuer
    assignments: RoleAssignments


@dataclass(frozen=True, slots=True)
class _Grant:
    expiry: float
    principal: str | None
    """Whose roles decide; None has every right."""


class Authorization:
    """The authorization of one connection. Times are seconds since the Unix epoch."""

    def __init__(self, key: SharedKey, identities: Identities | None = None) -> None:
        self._key = key
        self._identities = identities
        self._has_key = False
        self._granted: dict[str, _Grant] = {}  # by path
        self._identity_expiry = 0.0

    def authenticate(self, mechanism: str, response: bytes) -> bool:
        """SASL: PLAIN needs the key, which is valid for everything. Others rely on `$cbs`."""
        if mechanism != "PLAIN":
            return True
        _, _, credentials = response.partition(b"\0")
        name, _, value = credentials.partition(b"\0")
        self._has_key = hmac.compare_digest(name, self._key.name.encode()) and hmac.compare_digest(
            value, self._key.value.encode()
        )
        return self._has_key

    def put_token(self, audience: str, token: str, now_seconds: float) -> None:
        """Allow access to an entity until the token expires.

        Args:
            audience: URI of the entity.
            token: a shared access signature or a JSON web token.
            now_seconds: the current time.

        Raises:
            TokenError: the token is not valid for the entity.
        """
        path = entity_path(audience)
        if token.startswith(SAS_PREFIX):
            scope, expiry = _verify_signature(token, self._key)
            if not _covers(scope, path):
                raise TokenError(f"the token is for {scope!r}, not for {path!r}")
            principal = None
        else:
            principal = self._principal_of(token, now_seconds)
            expiry = self._identity_expiry = _read_expiry(token)
        if expiry <= now_seconds:
            raise TokenError("the token has expired")
        self._granted[path] = _Grant(expiry, principal)

    def _principal_of(self, token: str, now_seconds: float) -> str | None:
        identities = self._identities
        if identities is None or not identities.assignments.are_enforced:
            return None
        try:
            return identities.tokens.check(token, now=now_seconds)
        except InvalidTokenError as error:
            raise TokenError(str(error)) from None

    def has_identity(self, now_seconds: float) -> bool:
        """Whether a valid token of Entra ID was put, for any entity."""
        return self._identity_expiry > now_seconds

    def has_token(self, path: str, now_seconds: float) -> bool:
        """Whether a valid token covers the entity, whatever it allows."""
        return self._has_key or any(True for _ in self._grants(path, now_seconds))

    def allows(
        self, path: str, now_seconds: float, rights: Collection[Right] = tuple(Right)
    ) -> bool:
        """Whether a valid token covers the entity with one of the rights."""
        return self._has_key or any(
            grant.principal is None
            or (
                self._identities is not None
                and any(
                    self._identities.assignments.permit(
                        grant.principal, f"serviceBus/{path}", right
                    )
                    for right in rights
                )
            )
            for grant in self._grants(path, now_seconds)
        )

    def _grants(self, path: str, now_seconds: float) -> Iterator[_Grant]:
        for granted, grant in self._granted.items():
            if grant.expiry > now_seconds and _covers(granted, path):
                yield grant


def _covers(scope: str, path: str) -> bool:
    # Node's SDK puts a token for the management node, and none for its entity.
    return scope in ("", path, f"{path}/{MANAGEMENT}") or path.startswith(f"{scope}/")


def _verify_signature(token: str, key: SharedKey) -> tuple[str, float]:
    """Path and expiry of a shared access signature of this key."""
    fields: dict[str, str] = {}
    for item in token.removeprefix(SAS_PREFIX).split("&"):
        name, _, value = item.partition("=")
        fields[name] = value
    missing = [name for name in ("sr", "sig", "se", "skn") if name not in fields]
    if missing:
        raise TokenError(f"the shared access signature lacks {', '.join(missing)}")
    has_key_name = hmac.compare_digest(unquote(fields["skn"]).encode(), key.name.encode())
    # The signature covers the resource in its encoded form.
    if not key.signs(f"{fields['sr']}\n{fields['se']}", unquote(fields["sig"])) or not has_key_name:
        raise TokenError("the signature is not one of this namespace's key")
    try:
        expiry = float(fields["se"])
    except ValueError:
        raise TokenError("the expiry of the shared access signature is not a number") from None
    return entity_path(unquote(fields["sr"])), expiry


def _read_expiry(token: str) -> float:
    """The expiry of a JSON web token."""
    options: Options = {"verify_signature": False}
    try:
        return float(jwt.decode(token, options=options)["exp"])
    except (jwt.InvalidTokenError, ValueError, TypeError, KeyError):
        raise TokenError(
            "the token is neither a shared access signature nor a JSON web token with an expiry"
        ) from None
