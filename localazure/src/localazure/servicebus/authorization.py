"""Authorization of a connection: claims-based security over the node `$cbs`, and SASL PLAIN.

Tokens are shared access signatures, https://learn.microsoft.com/azure/service-bus-messaging/service-bus-sas,
or JSON web tokens. Where roles are enforced, the local identity endpoint must have issued the JSON
web token, and the roles of its principal decide. Elsewhere any well-formed token is accepted until
it expires: the signature of a token of Entra ID, for example, cannot be verified here.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote

from localazure.runtime.identity import InvalidTokenError, TokenIssuer, unverified_claims
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
    """The key of an authorization rule of the namespace, or of a queue or topic.

    Attributes:
        entity: path of the queue or topic in lower case; empty for the namespace.
    """

    name: str
    value: str
    rights: frozenset[Right] = frozenset(Right)
    entity: str = ""

    def signs(self, text: str, signature: str) -> bool:
        """Whether this key gives the signature for the text."""
        digest = hmac.new(self.value.encode(), text.encode(), hashlib.sha256).digest()
        return hmac.compare_digest(base64.b64encode(digest), signature.encode())


@dataclass(frozen=True, slots=True)
class Identities:
    """Issuer of bearer tokens, and the roles of principals."""

    tokens: TokenIssuer
    assignments: RoleAssignments


@dataclass(frozen=True, slots=True)
class _Grant:
    expiry: float
    holder: str | frozenset[Right]
    """The principal whose roles apply, or the rights themselves."""


class Authorization:
    """The authorization of one connection. Times are seconds since the Unix epoch."""

    def __init__(self, keys: Iterable[SharedKey], identities: Identities | None = None) -> None:
        self._keys = tuple(keys)
        self._identities = identities
        self._key: SharedKey | None = None
        """The key of SASL PLAIN."""
        self._granted: dict[str, _Grant] = {}  # by path

    def authenticate(self, mechanism: str, response: bytes) -> bool:
        """Authenticate by SASL. PLAIN needs a key; other mechanisms rely on `$cbs`."""
        if mechanism != "PLAIN":
            return True
        _, _, credentials = response.partition(b"\0")
        name, _, value = credentials.partition(b"\0")
        for key in _named(name.decode(errors="replace"), self._keys):
            if hmac.compare_digest(value, key.value.encode()):
                self._key = key
        return self._key is not None

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
        """Whether a valid token covers the entity, with any rights."""
        return any(True for _ in self._grants(path, now_seconds))

    def allows(
        self, path: str, now_seconds: float, rights: Collection[Right] = tuple(Right)
    ) -> bool:
        """Whether a valid token covers the entity with one of the rights."""
        return any(
            self._permits(grant, path, right)
            for grant in self._grants(path, now_seconds)
            for right in rights
        )

    def _permits(self, grant: _Grant, path: str, right: Right) -> bool:
        if isinstance(grant.holder, frozenset):
            return right in grant.holder
        assert self._identities is not None  # a principal comes from `identities`
        return self._identities.assignments.permit(grant.holder, f"serviceBus/{path}", right)

    def _grants(self, path: str, now_seconds: float) -> Iterator[_Grant]:
        if self._key is not None and _covers(self._key.entity, path):
            yield _Grant(math.inf, self._key.rights)
        for granted, grant in self._granted.items():
            if grant.expiry > now_seconds and _covers(granted, path):
                yield grant


def _covers(scope: str, path: str) -> bool:
    # Node's SDK puts a token for the management node only, not for its entity.
    return scope in ("", path, f"{path}/{MANAGEMENT}") or path.startswith(f"{scope}/")


def _named(name: str, keys: Iterable[SharedKey]) -> Iterator[SharedKey]:
    """The keys with a name: each entity may have one."""
    return (key for key in keys if key.name == name)


def _verify_signature(token: str, keys: Iterable[SharedKey]) -> tuple[str, float, frozenset[Right]]:
    """Verify a shared access signature. Returns its path, expiry and rights."""
    fields: dict[str, str] = {}
    for item in token.removeprefix(SAS_PREFIX).split("&"):
        name, _, value = item.partition("=")
        fields[name] = value
    missing = [name for name in ("sr", "sig", "se", "skn") if name not in fields]
    if missing:
        raise TokenError(f"the shared access signature lacks {', '.join(missing)}")
    # The signature covers the resource in its encoded form.
    signed, signature = f"{fields['sr']}\n{fields['se']}", unquote(fields["sig"])
    named = _named(unquote(fields["skn"]), keys)
    key = next((key for key in named if key.signs(signed, signature)), None)
    if key is None:
        raise TokenError("the signature is not one of this namespace's keys")
    path = entity_path(unquote(fields["sr"]))
    if not _covers(key.entity, path):
        raise TokenError(f"the key is that of {key.entity!r}, not of {path!r}")
    try:
        expiry = float(fields["se"])
    except ValueError:
        raise TokenError("the expiry of the shared access signature is not a number") from None
    return path, expiry, key.rights


def _read_expiry(token: str) -> float:
    """Return the expiry of a JSON web token."""
    try:
        return float(unverified_claims(token)["exp"])
    except (ValueError, TypeError, KeyError):
        raise TokenError(
            "the token is neither a shared access signature nor a JSON web token with an expiry"
        ) from None
