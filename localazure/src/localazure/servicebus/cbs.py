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
from collections.abc import Collection, Iterable, Iterator, Mapping
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


class Right(StrEnum):
    """A link's use of an entity: the data actions of roles."""

    SEND = "messages/send"
    RECEIVE = "messages/receive"


@dataclass(frozen=True, slots=True)
class SharedKey:
    """The key of an authorization rule of the namespace."""

    name: str
    value: str
    rights: frozenset[Right] = frozenset(Right)

    def signs(self, text: str, signature: str) -> bool:
        """Whether the signature is that of the text with this key."""
        digest = hmac.new(self.value.encode(), text.encode(), hashlib.sha256).digest()
        return hmac.compare_digest(base64.b64encode(digest), signature.encode())


@dataclass(frozen=True, slots=True)
class Identities:
    """Identities that may authenticate by a token, and their permissions."""

    tokens: TokenIssuer
    assignments: RoleAssignments


@dataclass(frozen=True, slots=True)
class _Grant:
    expiry: float
    holder: str | frozenset[Right]
    """The principal whose roles decide, or the rights themselves."""


class Authorization:
    """The authorization of one connection. Times are seconds since the Unix epoch."""

    def __init__(self, keys: Iterable[SharedKey], identities: Identities | None = None) -> None:
        self._keys = {key.name: key for key in keys}
        self._identities = identities
        self._key_rights: frozenset[Right] = frozenset()
        """By SASL PLAIN, of every entity."""
        self._granted: dict[str, _Grant] = {}  # by path

    def authenticate(self, mechanism: str, response: bytes) -> bool:
        """SASL: PLAIN needs a key, which is valid for all entities. Others rely on `$cbs`."""
        if mechanism != "PLAIN":
            return True
        _, _, credentials = response.partition(b"\0")
        name, _, value = credentials.partition(b"\0")
        key = self._keys.get(name.decode(errors="replace"))
        if key is None or not hmac.compare_digest(value, key.value.encode()):
            return False
        self._key_rights = key.rights
        return True

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
            scope, expiry, holder = _verify_signature(token, self._keys)
            if not _covers(scope, path):
                raise TokenError(f"the token is for {scope!r}, not for {path!r}")
        else:
            holder = self._holder_of(token, now_seconds)
            expiry = _read_expiry(token)
        if expiry <= now_seconds:
            raise TokenError("the token has expired")
        self._granted[path] = _Grant(expiry, holder)

    def _holder_of(self, token: str, now_seconds: float) -> str | frozenset[Right]:
        identities = self._identities
        if identities is None or not identities.assignments.are_enforced:
            return frozenset(Right)
        try:
            return identities.tokens.check(token, now=now_seconds)
        except InvalidTokenError as error:
            raise TokenError(str(error)) from None

    def has_token(self, path: str, now_seconds: float) -> bool:
        """Whether a valid token covers the entity, whatever it allows."""
        return bool(self._key_rights) or any(True for _ in self._grants(path, now_seconds))

    def allows(
        self, path: str, now_seconds: float, rights: Collection[Right] = tuple(Right)
    ) -> bool:
        """Whether a valid token covers the entity with one of the rights."""
        return not self._key_rights.isdisjoint(rights) or any(
            self._permits(grant, path, right)
            for grant in self._grants(path, now_seconds)
            for right in rights
        )

    def _permits(self, grant: _Grant, path: str, right: Right) -> bool:
        if isinstance(grant.holder, frozenset):
            return right in grant.holder
        assert self._identities is not None  # or there is no principal
        return self._identities.assignments.permit(grant.holder, f"serviceBus/{path}", right)

    def _grants(self, path: str, now_seconds: float) -> Iterator[_Grant]:
        for granted, grant in self._granted.items():
            if grant.expiry > now_seconds and _covers(granted, path):
                yield grant


def _covers(scope: str, path: str) -> bool:
    # Node's SDK puts a token for the management node, and none for its entity.
    return scope in ("", path, f"{path}/{MANAGEMENT}") or path.startswith(f"{scope}/")


def _verify_signature(
    token: str, keys: Mapping[str, SharedKey]
) -> tuple[str, float, frozenset[Right]]:
    """Path, expiry and rights of a shared access signature by one of the keys."""
    fields: dict[str, str] = {}
    for item in token.removeprefix(SAS_PREFIX).split("&"):
        name, _, value = item.partition("=")
        fields[name] = value
    missing = [name for name in ("sr", "sig", "se", "skn") if name not in fields]
    if missing:
        raise TokenError(f"the shared access signature lacks {', '.join(missing)}")
    key = keys.get(unquote(fields["skn"]))
    # The signature covers the resource in its encoded form.
    if key is None or not key.signs(f"{fields['sr']}\n{fields['se']}", unquote(fields["sig"])):
        raise TokenError("the signature is not one of this namespace's keys")
    try:
        expiry = float(fields["se"])
    except ValueError:
        raise TokenError("the expiry of the shared access signature is not a number") from None
    return entity_path(unquote(fields["sr"])), expiry, key.rights


def _read_expiry(token: str) -> float:
    """The expiry of a JSON web token."""
    options: Options = {"verify_signature": False}
    try:
        return float(jwt.decode(token, options=options)["exp"])
    except (jwt.InvalidTokenError, ValueError, TypeError, KeyError):
        raise TokenError(
            "the token is neither a shared access signature nor a JSON web token with an expiry"
        ) from None
